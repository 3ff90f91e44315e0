/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  SHA-256 of a text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"

#include "digest.h"

/*
 * DigestHex: bytes as hexadecimal digits.
 */
char *
DigestHex(const uint8 *bytes, int length)
{
	char	   *hex = palloc(2 * length + 1);

	for (int i = 0; i < length; i++)
		sprintf(hex + 2 * i, "%02x", bytes[i]);
	return hex;
}

/*
 * DigestOf: the hash of a text, as hexadecimal digits.
 */
char *
DigestOf(const char *text)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);

	if (pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) text, strlen(text)) < 0 ||
		pg_cryptohash_final(context, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute a hash");
	pg_cryptohash_free(context);
	return DigestHex(digest, sizeof(digest));
}
