//! All scenarios, the quick ones first, and what must hold in them.

use super::{
    Scenario, aof_truncation, clock, cluster, eviction, failover, lost_update, network, one_server,
    partition, planned, restart, sentinel,
};
use crate::checkers::{MissingReplies, Rule};
use crate::verdict::Rules;

/// An unplanned failover, or a restart without all data: what was replied may be lost, no lock may have too
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
    expected: Some(Rule::LostWrites),
    ..LOSSY
};

/// A server that never heard of the fences of the one before it, with a clock behind them. Each promotion
/// leaps by 32 s of clock and a random part, so that the smaller leap of two may be the later one.
const UNSYNCED: Rules = Rules {
    expected: Some(Rule::Fences),
    ..LOSSY
};

/// A network that may swallow replies.
const BAD_NETWORK: Rules = Rules {
    missing_replies: MissingReplies::Allowed,
    ..Rules::STRICT
};

/// All of them, the quick ones first.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "clients",
        description: "clients die, stop, are killed, unblocked and paused; the server stops for a while",
        count: 700,
        short: 12,
        rules: Rules::STRICT,
        body: one_server::clients,
    },
    Scenario {
        name: "effect",
        description: "an unguarded set under a mutex, holders keep to their deadlines: nothing is lost",
        count: 500,
        short: 10,
        rules: Rules::STRICT,
        body: lost_update::mutex_alone,
    },
    Scenario {
        name: "effect-fences",
        description: "holders are stopped past their lease, the store refuses smaller fences: nothing is lost",
        count: 300,
        short: 10,
        rules: LOSSY,
        body: lost_update::fences,
    },
    Scenario {
        name: "effect-no-fences",
        description: "the same without fences: lost elements are expected",
        count: 100,
        short: 15,
        rules: UNGUARDED,
        body: lost_update::stopped_without_fences,
    },
    Scenario {
        name: "network",
        description: "a proxy delays, freezes one way or both, cuts inside of requests and replies",
        count: 500,
        short: 8,
        rules: BAD_NETWORK,
        body: network::bad,
    },
    Scenario {
        name: "eviction",
        description: "memory is full of keys with a TTL, under each volatile-* policy",
        count: 600,
        short: 8,
        rules: Rules::STRICT,
        body: eviction::pressure,
    },
    Scenario {
        name: "clock",
        description: "the wall clock of the server jumps by hours, forward and back, also across restarts",
        count: 400,
        short: 8,
        rules: Rules::STRICT,
        body: clock::jumps,
    },
    Scenario {
        name: "log-cut",
        description: "the append-only file final_states at every byte of its last records",
        count: 2000,
        short: 8,
        rules: LOSSY,
        body: aof_truncation::every_byte,
    },
    Scenario {
        name: "restart-always",
        description: "kill -9 and restart with appendfsync always: nothing is lost",
        count: 150,
        short: 3,
        rules: Rules::STRICT,
        body: restart::fsync_always,
    },
    Scenario {
        name: "restart-grace",
        description: "the machine dies with the tail of the log: appendfsync everysec and no in turn, with a grace",
        count: 80,
        short: 2,
        rules: LOSSY,
        body: restart::lost_tail_with_grace,
    },
    Scenario {
        name: "restart-tail",
        description: "the same without a grace: overlaps are expected",
        count: 40,
        short: 6,
        rules: EVICTABLE,
        body: restart::lost_tail,
    },
    Scenario {
        name: "restart-nothing-grace",
        description: "kill -9 and restart without any data, with a grace",
        count: 40,
        short: 2,
        rules: LOSSY,
        body: restart::no_data_with_grace,
    },
    Scenario {
        name: "restart-nothing",
        description: "the same without a grace: overlaps are expected",
        count: 20,
        short: 4,
        rules: EVICTABLE,
        body: restart::no_data,
    },
    Scenario {
        name: "failover-grace",
        description: "the primary is killed with a lost tail, with a grace of the longest lease",
        count: 500,
        short: 3,
        rules: LOSSY,
        body: failover::with_grace,
    },
    Scenario {
        name: "failover",
        description: "the same without a grace: overlaps are expected",
        count: 60,
        short: 6,
        rules: EVICTABLE,
        body: failover::without_grace,
    },
    Scenario {
        name: "failover-unsynced",
        description: "the second replica takes over without having heard of the first: fences may fall",
        count: 12,
        short: 0,
        rules: UNSYNCED,
        body: failover::unsynced,
    },
    Scenario {
        name: "failover-planned",
        description: "FAILOVER: the primary hands over, nothing is lost",
        count: 40,
        short: 2,
        rules: Rules::STRICT,
        body: planned::failovers,
    },
    Scenario {
        name: "failover-sentinel",
        description: "the primary is killed, a Sentinel promotes a replica, with a grace",
        count: 12,
        short: 1,
        rules: LOSSY,
        body: sentinel::failovers,
    },
    Scenario {
        name: "cluster-resharding",
        description: "slots of a cluster move with their locks, to and fro",
        count: 100,
        short: 3,
        rules: Rules::STRICT,
        body: cluster::resharding,
    },
    Scenario {
        name: "cluster-failover",
        description: "a primary of a cluster is killed, its replica takes over, with a grace",
        count: 8,
        short: 1,
        rules: LOSSY,
        body: cluster::failovers,
    },
    Scenario {
        name: "partition",
        description: "an old primary that goes on serving, with a grace: overlaps are expected",
        count: 30,
        short: 1,
        rules: EVICTABLE,
        body: partition::keeps_serving,
    },
    Scenario {
        name: "partition-min-replicas",
        description: "the same with min-replicas-to-write and a lag limit below the failover time",
        count: 36,
        short: 1,
        rules: LOSSY,
        body: partition::min_replicas,
    },
    Scenario {
        name: "partition-asleep",
        description: "the same, but the old primary sleeps and paused: it grants until it looks at its replicas",
        count: 12,
        short: 0,
        rules: EVICTABLE,
        body: partition::paused,
    },
];
