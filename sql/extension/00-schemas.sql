/*
 * Schemas.  durable holds the views, and USAGE on it is the one grant that
 * lets a role in; durable_internal holds the tables, which only the
 * extension's C code reaches.  The functions go to the extension's schema.
 */
CREATE SCHEMA durable;
CREATE SCHEMA durable_internal;
REVOKE ALL ON SCHEMA durable, durable_internal FROM PUBLIC;
