/*
 * The order workflow: reserve, charge, wait for an approval, pack, ship.
 */
CREATE TABLE stock (item text PRIMARY KEY, available int NOT NULL CHECK (available >= 0));
CREATE TABLE payment (order_id int PRIMARY KEY, amount numeric NOT NULL, paid_at timestamptz NOT NULL);
CREATE TABLE shipment (order_id int PRIMARY KEY, tracking uuid NOT NULL);

-- Activities: ordinary functions, each run exactly once.
CREATE FUNCTION reserve_stock(order_id int, item text) RETURNS int LANGUAGE sql
BEGIN ATOMIC
    UPDATE stock SET available = available - 1 WHERE stock.item = reserve_stock.item RETURNING available;
END;

-- What undoes it, should a later step fail: it gets the arguments of the step that it asks for.
CREATE FUNCTION release_stock(item text) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    UPDATE stock SET available = available + 1 WHERE stock.item = release_stock.item;
END;

CREATE FUNCTION charge_card(order_id int, amount numeric) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF amount > 1000 THEN
        PERFORM durable_fail('card declined');      -- no use to try again
    END IF;
    -- the bank does not answer at the first attempt
    IF durable_attempt() = 1 THEN
        RAISE EXCEPTION 'no answer from the bank' USING ERRCODE = 'connection_failure';
    END IF;
    INSERT INTO payment VALUES (order_id, amount, now());
    RETURN 'paid ' || amount;
END $$;

CREATE FUNCTION ship(order_id int, tracking uuid) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shipment VALUES (order_id, tracking);
    RETURN tracking;
END $$;

-- The workflow: an ordinary function as well, written as if nothing ever failed.
CREATE FUNCTION order_workflow(order_id int, item text, amount numeric) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    approval jsonb;
    tracking uuid;
BEGIN
    PERFORM durable_call('reserve_stock', jsonb_build_object('order_id', order_id, 'item', item),
                         compensate => 'release_stock');
    PERFORM durable_call('charge_card', jsonb_build_object('order_id', order_id, 'amount', amount),
                         retry => durable_retry_policy(initial => '100 ms', non_retryable => '{P0002,22}'));

    approval := durable_wait_signal('approval', timeout => '3 days');
    IF approval IS NULL THEN
        RAISE EXCEPTION 'order % was never approved', order_id;
    END IF;

    PERFORM durable_sleep('200 ms');
    tracking := durable_call_as(NULL::uuid, 'ship',
                                jsonb_build_object('order_id', order_id, 'tracking', durable_uuid()));
    RETURN jsonb_build_object('order', order_id, 'approved_by', approval->'by', 'tracking', tracking);
END $$;

SELECT durable_register('order_workflow');
