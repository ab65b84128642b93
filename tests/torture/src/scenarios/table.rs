//! All scenarios, the quick ones first, and what must hold in them.

use super::{
    Scenario, clock, cluster, effect, eviction, failover, log_cut, network, one_server, partition, planned,
    restart, sentinel,
};
use crate::checkers::{Rule, Silence};
use crate::verdict::Rules;

/// An unplanned failover, or a restart without all data: what was answered may be lost, no lock may have too
/// many holders.
const LOSSY: Rules = Rules {
    lossless: false,
    ..Rules::STRICT
};

/// Known to be unsafe: overlaps must be seen, or the harness would not see them elsewhere either.
const EVICTABLE: Rules = Rules {
    expected: Some(Rule::Overlap),
    ..LOSSY
};

/// As [`EVICTABLE`], for what is written and lost.
const UNGUARDED: Rules = Rules {
    expected: Some(Rule::Effect),
    ..LOSSY
};

/// A server that never heard of the fences of the one before it, with a clock behind them. Each promotion
/// leaps by 32 s of clock and a random part, so that the smaller leap of two may be the later one.
const UNHEARD: Rules = Rules {
    expected: Some(Rule::Fences),
    ..LOSSY
};

/// A network that may swallow answers.
const BAD_NETWORK: Rules = Rules {
    silence: Silence::Allowed,
    ..Rules::STRICT
};

/// All of them, the quick ones first.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "clients",
        about: "clients die, stop, are killed, unblocked and paused; the server stops for a while",
        count: 700,
        short: 12,
        rules: Rules::STRICT,
        run: one_server::clients,
    },
    Scenario {
        name: "effect",
        about: "an unguarded set under a mutex, holders keep to their deadlines: nothing is lost",
        count: 500,
        short: 10,
        rules: Rules::STRICT,
        run: effect::mutex_alone,
    },
    Scenario {
        name: "effect-fences",
        about: "holders are stopped past their lease, the store refuses smaller fences: nothing is lost",
        count: 300,
        short: 10,
        rules: LOSSY,
        run: effect::fences,
    },
    Scenario {
        name: "effect-no-fences",
        about: "the same without fences: lost elements are expected",
        count: 100,
        short: 15,
        rules: UNGUARDED,
        run: effect::stopped_without_fences,
    },
    Scenario {
        name: "network",
        about: "a proxy delays, freezes one way or both, cuts inside of requests and answers",
        count: 500,
        short: 8,
        rules: BAD_NETWORK,
        run: network::bad,
    },
    Scenario {
        name: "eviction",
        about: "memory is full of keys with a TTL, under each volatile-* policy",
        count: 600,
        short: 8,
        rules: Rules::STRICT,
        run: eviction::pressure,
    },
    Scenario {
        name: "clock",
        about: "the wall clock of the server jumps by hours, forward and back, also across restarts",
        count: 400,
        short: 8,
        rules: Rules::STRICT,
        run: clock::jumps,
    },
    Scenario {
        name: "log-cut",
        about: "the append-only file ends at every byte of its last records",
        count: 2000,
        short: 8,
        rules: LOSSY,
        run: log_cut::every_byte,
    },
    Scenario {
        name: "restart-always",
        about: "kill -9 and restart with appendfsync always: nothing is lost",
        count: 150,
        short: 3,
        rules: Rules::STRICT,
        run: restart::logged_always,
    },
    Scenario {
        name: "restart-grace",
        about: "the machine dies with the tail of the log: appendfsync everysec and no in turn, with a grace",
        count: 80,
        short: 2,
        rules: LOSSY,
        run: restart::logged_sometimes_with_grace,
    },
    Scenario {
        name: "restart-tail",
        about: "the same without a grace: overlaps are expected",
        count: 40,
        short: 6,
        rules: EVICTABLE,
        run: restart::logged_sometimes,
    },
    Scenario {
        name: "restart-nothing-grace",
        about: "kill -9 and restart without any data, with a grace",
        count: 40,
        short: 2,
        rules: LOSSY,
        run: restart::unlogged_with_grace,
    },
    Scenario {
        name: "restart-nothing",
        about: "the same without a grace: overlaps are expected",
        count: 20,
        short: 4,
        rules: EVICTABLE,
        run: restart::unlogged,
    },
    Scenario {
        name: "failover-grace",
        about: "the primary is killed with a lost tail, with a grace of the longest lease",
        count: 500,
        short: 3,
        rules: LOSSY,
        run: failover::with_grace,
    },
    Scenario {
        name: "failover",
        about: "the same without a grace: overlaps are expected",
        count: 60,
        short: 6,
        rules: EVICTABLE,
        run: failover::without_grace,
    },
    Scenario {
        name: "failover-unheard",
        about: "the second replica takes over without having heard of the first: fences may fall",
        count: 12,
        short: 0,
        rules: UNHEARD,
        run: failover::unheard,
    },
    Scenario {
        name: "failover-planned",
        about: "FAILOVER: the primary hands over, nothing is lost",
        count: 40,
        short: 2,
        rules: Rules::STRICT,
        run: planned::failovers,
    },
    Scenario {
        name: "failover-sentinel",
        about: "the primary is killed, a Sentinel promotes a replica, with a grace",
        count: 12,
        short: 1,
        rules: LOSSY,
        run: sentinel::failovers,
    },
    Scenario {
        name: "cluster-resharding",
        about: "slots of a cluster move with their locks, to and fro",
        count: 100,
        short: 3,
        rules: Rules::STRICT,
        run: cluster::resharding,
    },
    Scenario {
        name: "cluster-failover",
        about: "a primary of a cluster is killed, its replica takes over, with a grace",
        count: 8,
        short: 1,
        rules: LOSSY,
        run: cluster::failovers,
    },
    Scenario {
        name: "partition",
        about: "an old primary that goes on serving, with a grace: overlaps are expected",
        count: 30,
        short: 1,
        rules: EVICTABLE,
        run: partition::goes_on,
    },
    Scenario {
        name: "partition-min-replicas",
        about: "the same with min-replicas-to-write and a lag limit below the failover time",
        count: 36,
        short: 1,
        rules: LOSSY,
        run: partition::min_replicas,
    },
    Scenario {
        name: "partition-asleep",
        about: "the same, but the old primary sleeps and wakes: it grants until it looks at its replicas",
        count: 12,
        short: 0,
        rules: EVICTABLE,
        run: partition::wakes,
    },
];
