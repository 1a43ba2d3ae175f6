-- A task of an agent serves one hop. Where a record holds one twice, the oldest hop keeps it; the others wait without
-- one, and end at their deadline.
UPDATE a2a_bridge SET foreign_task_id = NULL, doc = json_set(doc, '$.foreign', NULL)
    WHERE foreign_task_id IS NOT NULL AND rowid > (
        SELECT min(first.rowid) FROM a2a_bridge AS first WHERE first.org_id = a2a_bridge.org_id
            AND first.foreign_agent_key = a2a_bridge.foreign_agent_key
            AND first.foreign_task_id = a2a_bridge.foreign_task_id);
DROP INDEX a2a_bridge_foreign;
CREATE UNIQUE INDEX a2a_bridge_foreign ON a2a_bridge (org_id, foreign_agent_key, foreign_task_id)
    WHERE foreign_task_id IS NOT NULL;
