/*-------------------------------------------------------------------------
 *
 * digest.h
 *	  SHA-256 of a text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DIGEST_H
#define DURABLE_DIGEST_H

extern char *DigestHex(const uint8 *bytes, int length);
extern char *DigestOf(const char *text);

#endif							/* DURABLE_DIGEST_H */
