/*
 * Schemas.  durable holds the views, and USAGE on it is the one grant that
 * lets a role in; durable_internal holds the tables, which only the
 * extension's C code reaches; durable_pin holds copies of functions whose
 * instances are to finish on the definition they began on, while there are
 * any.  The functions go to the extension's schema.
 */
CREATE SCHEMA durable;
CREATE SCHEMA durable_internal;
CREATE SCHEMA durable_pin;
REVOKE ALL ON SCHEMA durable, durable_internal, durable_pin FROM PUBLIC;
