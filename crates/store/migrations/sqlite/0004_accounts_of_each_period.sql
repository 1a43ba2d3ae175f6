-- From here on money moves on the accounts of every period of a scope, whatever budget is in force. What was spent before
-- is put on those that weren't kept then, by the time of the turn's first entry. What is reserved for turns that are out
-- goes back to where it came from, so it isn't put on others.
CREATE TEMP TABLE spent AS
    SELECT c.org_id, h.to_endpoint, t.workflow_name, min(c.at) AS at, sum(c.settled_delta) AS amount
    FROM cost_entry AS c LEFT JOIN hop AS h ON h.org_id = c.org_id AND h.id = c.hop_id
        LEFT JOIN task AS t ON t.org_id = h.org_id AND t.id = h.task_id
    GROUP BY c.org_id, c.hop_id, c.turn;
CREATE TEMP TABLE spent_in AS
    SELECT org_id, 'org' AS scope, at, amount FROM spent
    UNION ALL SELECT org_id, to_endpoint, at, amount FROM spent WHERE to_endpoint LIKE 'agent:%'
    UNION ALL SELECT org_id, 'workflow:' || workflow_name, at, amount FROM spent WHERE workflow_name IS NOT NULL;
INSERT OR IGNORE INTO account (org_id, scope, since, reserved_microusd, settled_microusd)
    SELECT org_id, scope, 0, 0, max(0, sum(amount)) FROM spent_in GROUP BY 1, 2;
INSERT OR IGNORE INTO account (org_id, scope, since, reserved_microusd, settled_microusd)
    SELECT org_id, scope, unixepoch(at / 1000000, 'unixepoch', 'start of month') * 1000000, 0, max(0, sum(amount))
    FROM spent_in GROUP BY 1, 2, 3;
INSERT OR IGNORE INTO account (org_id, scope, since, reserved_microusd, settled_microusd)
    SELECT org_id, scope, unixepoch(at / 1000000, 'unixepoch', 'start of day') * 1000000, 0, max(0, sum(amount))
    FROM spent_in GROUP BY 1, 2, 3;
DROP TABLE spent_in;
DROP TABLE spent;
