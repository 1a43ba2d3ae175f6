-- What is out is counted before the switch of egress is thrown, which must not wait for a walk over all that ever was.
CREATE INDEX a2a_bridge_open ON a2a_bridge (org_id) WHERE status IN ('awaiting_approval', 'ready', 'sending',
    'send_unknown', 'working', 'input_required', 'auth_required');
