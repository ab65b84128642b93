import dlock


def test_lock(dlock_server):
    with dlock.lock(dlock_server.client(), "orders:42") as held:
        assert held.query("SET", "{orders:42}:state", "shipped")
