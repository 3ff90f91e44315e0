-- What a session has more after ten thousand instances than after a thousand.
SELECT durable_start('steps', '[1]') FROM generate_series(1, 1000) \g /dev/null
CALL durable_work();
SELECT sum(total_bytes) AS before FROM pg_backend_memory_contexts \gset
SELECT durable_start('steps', '[1]') FROM generate_series(1, 10000) \g /dev/null
CALL durable_work();
SELECT sum(total_bytes) - :before FROM pg_backend_memory_contexts;
