-- A foreign task belongs to one hop of its agent: the batch refuses a second, and so does the file.

DROP INDEX a2a_bridge_foreign;
CREATE UNIQUE INDEX a2a_bridge_foreign ON a2a_bridge (org_id, foreign_agent_key, foreign_task_id)
    WHERE foreign_task_id IS NOT NULL;
