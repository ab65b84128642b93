//! All scenarios and their rules, the quick ones first.

use super::{
    Scenario, aof_truncation, clock, cluster, eviction, failover, inboxes, lost_update, network, one_server,
    partition, planned, quorum, restart, sentinel, slot_migration, snapshots,
};
use crate::checkers::{MissingReplies, Rule};
use crate::clients::Workload;
use crate::specification::Part;
use crate::verdict::Rules;

/// An unplanned failover or a restart with lost data: acknowledged changes may be lost, but locks never have too many
/// holders.
const LOSSY: Rules = Rules {
    lossless: false,
    specified: Part::FirstTerm,
    ..Rules::STRICT
};

/// Known to be unsafe: overlaps must be detected, or the checkers would miss them elsewhere too.
const OVERLAPPING: Rules = Rules {
    expected: Some(Rule::Overlap),
    ..LOSSY
};

/// As [`OVERLAPPING`], for what is written and lost.
const UNFENCED: Rules = Rules {
    expected: Some(Rule::LostWrites),
    ..LOSSY
};

/// A new primary that does not know the fences of its predecessor. Each promotion advances the counter by 32 s of
/// clock and a random part, so the later of two may advance less.
const UNSYNCED: Rules = Rules {
    expected: Some(Rule::Fences),
    ..LOSSY
};

/// A network that may drop replies.
const BAD_NETWORK: Rules = Rules {
    missing_replies: MissingReplies::Allowed,
    ..Rules::STRICT
};

/// Networks as bad, and what a failover loses.
const LOSSY_AND_BAD_NETWORK: Rules = Rules {
    missing_replies: MissingReplies::Allowed,
    ..LOSSY
};

/// Grants that are told when replicas have them.
const SYNCHRONOUS_INBOXES: Rules = Rules {
    hides_places: true,
    ..LOSSY_AND_BAD_NETWORK
};

/// Clients that break a rule for clients: this rule is violated, and detected.
const fn breaking(rule: Rule) -> Rules {
    Rules {
        expected: Some(rule),
        ..LOSSY_AND_BAD_NETWORK
    }
}

/// Requests that are not recorded, or of another kind: no run of the specification.
const fn unspecified(rules: Rules) -> Rules {
    Rules {
        specified: Part::None,
        ..rules
    }
}

/// Holders are stopped and write late, through GUARD and without: the rule for the latter is violated.
const fn writing(rules: Rules) -> Rules {
    Rules {
        expected: Some(Rule::PlainWriteOrder),
        // Other scenarios detect that, or its absence.
        may_overlap: !rules.lossless,
        ..rules
    }
}

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "clients",
        description: "clients disconnect, pause, and are killed and unblocked; the server is stopped for a while",
        count: 700,
        short: 12,
        rules: Rules::STRICT,
        body: one_server::clients,
    },
    Scenario {
        name: "lost-update",
        description: "holders update a set under a mutex and respect their deadlines: no update is lost",
        count: 500,
        short: 10,
        rules: unspecified(Rules::STRICT),
        body: lost_update::mutex_alone,
    },
    Scenario {
        name: "lost-update-fenced",
        description: "holders are paused past their lease, the store rejects stale fences: no update is lost",
        count: 300,
        short: 10,
        rules: unspecified(LOSSY),
        body: lost_update::fences,
    },
    Scenario {
        name: "lost-update-unfenced",
        description: "the same without fencing: lost updates are expected",
        count: 100,
        short: 15,
        rules: unspecified(UNFENCED),
        body: lost_update::stopped_without_fences,
    },
    Scenario {
        name: "network",
        description: "a proxy delays, freezes one or both directions, cuts inside requests and replies",
        count: 500,
        short: 8,
        rules: BAD_NETWORK,
        body: |run| network::bad(run, Workload::mixed),
    },
    Scenario {
        name: "eviction",
        description: "the memory limit is reached, under each volatile-* policy",
        count: 600,
        short: 8,
        rules: Rules::STRICT,
        body: eviction::pressure,
    },
    Scenario {
        name: "clock",
        description: "the server's wall clock jumps by hours, forward and back, also across restarts",
        count: 400,
        short: 8,
        rules: Rules::STRICT,
        body: clock::jumps,
    },
    Scenario {
        name: "aof-truncation",
        description: "the AOF is truncated at every byte of its last records",
        count: 2000,
        short: 8,
        rules: unspecified(LOSSY),
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
        name: "power-failure-always",
        description: "a power failure loses what was not synced, with appendfsync always: nothing is lost",
        count: 150,
        short: 3,
        rules: Rules::STRICT,
        body: |run| restart::power_failure_always(run, Workload::mixed),
    },
    Scenario {
        name: "power-failure-always-guard",
        description: "the same; holders write late, through GUARD and without",
        count: 60,
        short: 4,
        rules: writing(Rules::STRICT),
        body: |run| restart::power_failure_always(run, Workload::writing),
    },
    Scenario {
        name: "power-failure-everysec",
        description: "the same with appendfsync everysec: overlaps are expected",
        count: 40,
        short: 6,
        rules: OVERLAPPING,
        body: |run| restart::power_failure(run, &["everysec"]),
    },
    Scenario {
        name: "power-failure-no",
        description: "the same with appendfsync no: overlaps are expected",
        count: 20,
        short: 4,
        rules: OVERLAPPING,
        body: |run| restart::power_failure(run, &["no"]),
    },
    Scenario {
        name: "restart-lost-tail-grace",
        description: "a crash loses the tail of the AOF, appendfsync everysec and no, with a grace period",
        count: 80,
        short: 2,
        rules: unspecified(LOSSY),
        body: restart::lost_tail_with_grace,
    },
    Scenario {
        name: "restart-lost-tail",
        description: "the same without a grace period: overlaps are expected",
        count: 40,
        short: 6,
        rules: OVERLAPPING,
        body: |run| restart::lost_tail(run, Workload::mixed),
    },
    Scenario {
        name: "restart-no-data-grace",
        description: "kill -9 and restart without persistence, with a grace period",
        count: 40,
        short: 2,
        rules: unspecified(LOSSY),
        body: restart::no_data_with_grace,
    },
    Scenario {
        name: "restart-no-data",
        description: "the same without a grace period: overlaps are expected",
        count: 20,
        short: 4,
        rules: OVERLAPPING,
        body: |run| restart::no_data(run, Workload::mixed),
    },
    Scenario {
        name: "failover-grace",
        description: "the primary is killed with unreplicated writes, with a grace period of the longest lease",
        count: 500,
        short: 3,
        rules: LOSSY,
        body: failover::with_grace,
    },
    Scenario {
        name: "failover",
        description: "the same without a grace period: overlaps are expected",
        count: 60,
        short: 6,
        rules: OVERLAPPING,
        body: |run| failover::without_grace(run, Workload::mixed),
    },
    Scenario {
        name: "failover-synchronous",
        description: "the same, but grants are told only when all replicas have them: no overlap",
        count: 300,
        short: 6,
        rules: unspecified(LOSSY),
        body: failover::with_synchronous_grants,
    },
    Scenario {
        name: "failover-grace-lowered",
        description: "with a grace period of an hour, which is lowered to the longest lease",
        count: 60,
        short: 3,
        rules: LOSSY,
        body: failover::grace_lowered,
    },
    Scenario {
        name: "failover-grace-ended",
        description: "with a grace period that is ended at once: overlaps are expected",
        count: 60,
        short: 6,
        rules: OVERLAPPING,
        body: failover::grace_ended,
    },
    Scenario {
        name: "failover-unsynced",
        description: "a second replica takes over that never replicated from the first: fences may decrease",
        count: 12,
        short: 0,
        rules: UNSYNCED,
        body: failover::unsynced,
    },
    Scenario {
        name: "snapshots",
        description: "replicas start from old snapshots, partially resynchronise, and have the same locks; some take over",
        count: 60,
        short: 4,
        rules: Rules::STRICT,
        body: snapshots::partial_resyncs,
    },
    Scenario {
        name: "failover-planned",
        description: "planned failover with FAILOVER: nothing is lost",
        count: 40,
        short: 2,
        rules: Rules::STRICT,
        body: planned::failovers,
    },
    Scenario {
        name: "failover-sentinel",
        description: "the primary is killed, a Sentinel promotes a replica, with a grace period",
        count: 12,
        short: 1,
        rules: LOSSY,
        body: sentinel::with_grace,
    },
    Scenario {
        name: "failover-sentinel-synchronous",
        description: "the primary is killed or stopped; grants are told when all replicas have them, no grace period",
        count: 12,
        short: 2,
        rules: unspecified(LOSSY),
        body: sentinel::with_synchronous_grants,
    },
    Scenario {
        name: "cluster-resharding",
        description: "slots of a cluster migrate back and forth with their locks",
        count: 100,
        short: 3,
        rules: Rules::STRICT,
        body: |run| cluster::resharding(run, Workload::mixed),
    },
    Scenario {
        name: "cluster-slot-migration",
        description: "slots migrate atomically (Valkey 9), some cancelled or slower than a lease, some from a false source",
        count: 100,
        short: 3,
        rules: Rules::STRICT,
        body: slot_migration::migrations,
    },
    Scenario {
        name: "cluster-slot-migration-faults",
        description: "the same with replicas and logs; nodes are killed and restarted, or fail over, during migrations",
        count: 60,
        short: 3,
        rules: Rules::STRICT,
        body: slot_migration::migrations_with_faults,
    },
    Scenario {
        name: "cluster-failover",
        description: "a primary of a cluster is killed, its replica takes over, with a grace period",
        count: 8,
        short: 1,
        rules: LOSSY,
        body: cluster::failovers_with_grace,
    },
    Scenario {
        name: "cluster-failover-synchronous",
        description: "the primary is killed or stopped; grants are told when its replica has them, no grace period",
        count: 8,
        short: 2,
        rules: unspecified(LOSSY),
        body: cluster::failovers_with_synchronous_grants,
    },
    Scenario {
        name: "partition",
        description: "an isolated old primary keeps serving, with a grace period: overlaps are expected",
        count: 30,
        short: 1,
        rules: OVERLAPPING,
        body: |run| partition::keeps_serving(run, Workload::mixed),
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
        name: "partition-synchronous",
        description: "the same, grants are told only when the replica has them, no grace period and no wait: no overlap",
        count: 60,
        short: 2,
        rules: unspecified(LOSSY),
        body: partition::synchronous_grants,
    },
    Scenario {
        name: "partition-paused",
        description: "the same, but the old primary is paused and resumes: it grants until it checks its replicas",
        count: 12,
        short: 0,
        rules: OVERLAPPING,
        body: partition::paused,
    },
    Scenario {
        name: "quorum",
        description: "five servers: restarts, stops, bad networks, readers cut, clients split from some, holders paused",
        count: 300,
        short: 12,
        rules: unspecified(LOSSY),
        body: quorum::durable,
    },
    Scenario {
        name: "quorum-three",
        description: "the same with three servers, which clients name in different orders",
        count: 300,
        short: 8,
        rules: unspecified(LOSSY),
        body: quorum::three_servers,
    },
    Scenario {
        name: "quorum-no-data-grace",
        description: "the same, servers restart without data, with a grace period and clocks that differ by less",
        count: 100,
        short: 6,
        rules: unspecified(LOSSY),
        body: quorum::no_data_with_grace,
    },
    Scenario {
        name: "quorum-seven-no-data-grace",
        description: "the same with seven servers, which clients name in different orders",
        count: 100,
        short: 0,
        rules: unspecified(LOSSY),
        body: quorum::seven_servers,
    },
    Scenario {
        name: "quorum-no-data",
        description: "the same without a grace period: overlaps are expected",
        count: 30,
        short: 8,
        rules: unspecified(OVERLAPPING),
        body: quorum::no_data,
    },
    Scenario {
        name: "quorum-clocks-set-back",
        description: "with a grace period, but clocks are set back by an hour: fences may decrease",
        count: 12,
        short: 6,
        rules: unspecified(UNSYNCED),
        body: quorum::clocks_set_back,
    },
    Scenario {
        name: "network-guarded",
        description: "a bad network: late writes are in order with GUARD, not without",
        count: 200,
        short: 16,
        rules: writing(BAD_NETWORK),
        body: |run| network::bad(run, Workload::writing),
    },
    Scenario {
        name: "restart-lost-tail-guarded",
        description: "the tail of the AOF is lost: late writes are in order with GUARD, not without",
        count: 60,
        short: 3,
        rules: writing(LOSSY),
        body: |run| restart::lost_tail(run, Workload::writing),
    },
    Scenario {
        name: "restart-no-data-guarded",
        description: "restarts without persistence: late writes are in order with GUARD, not without",
        count: 60,
        short: 5,
        rules: writing(LOSSY),
        body: |run| restart::no_data(run, Workload::writing),
    },
    Scenario {
        name: "failover-guarded",
        description: "unreplicated writes are lost: late writes are in order with GUARD, not without",
        count: 60,
        short: 3,
        rules: writing(LOSSY),
        body: |run| failover::without_grace(run, Workload::writing),
    },
    Scenario {
        name: "cluster-resharding-guarded",
        description: "slots migrate with locks and data: late writes are in order with GUARD, not without",
        count: 40,
        short: 2,
        rules: writing(Rules::STRICT),
        body: |run| cluster::resharding(run, Workload::writing),
    },
    Scenario {
        name: "partition-guarded",
        description: "an isolated old primary goes on: late writes are in order with GUARD, not without",
        count: 36,
        short: 3,
        rules: writing(LOSSY),
        body: |run| partition::keeps_serving(run, Workload::writing),
    },
    Scenario {
        name: "inboxes",
        description: "processes of 200 waiters are killed, stopped and cut off; the server restarts, is stopped, pauses",
        count: 250,
        short: 16,
        rules: BAD_NETWORK,
        body: inboxes::one_server,
    },
    Scenario {
        name: "power-failure-always-inboxes",
        description: "the same, but the server loses its power, with appendfsync always: nothing is lost",
        count: 150,
        short: 12,
        rules: BAD_NETWORK,
        body: inboxes::power_failures,
    },
    Scenario {
        name: "inboxes-failover-grace",
        description: "the same; the primary is killed with unreplicated writes, with a grace period",
        count: 40,
        short: 3,
        rules: LOSSY_AND_BAD_NETWORK,
        body: inboxes::failovers_with_grace,
    },
    Scenario {
        name: "inboxes-failover",
        description: "the same without a grace period: overlaps are expected",
        count: 20,
        short: 3,
        rules: breaking(Rule::Overlap),
        body: inboxes::failovers_without_grace,
    },
    Scenario {
        name: "inboxes-failover-synchronous",
        description: "the same, but grants are told only when all replicas have them: no overlap",
        count: 40,
        short: 3,
        rules: SYNCHRONOUS_INBOXES,
        body: inboxes::failovers_with_synchronous_grants,
    },
    Scenario {
        name: "inboxes-failover-planned",
        description: "the same with planned failovers",
        count: 30,
        short: 2,
        rules: BAD_NETWORK,
        body: inboxes::planned_failovers,
    },
    Scenario {
        name: "inboxes-resharding",
        description: "the same while slots of a cluster migrate back and forth",
        count: 100,
        short: 6,
        rules: BAD_NETWORK,
        body: inboxes::resharding,
    },
    Scenario {
        name: "inboxes-slot-migration",
        description: "the same while slots migrate atomically (Valkey 9)",
        count: 60,
        short: 4,
        rules: BAD_NETWORK,
        body: inboxes::slot_migrations,
    },
    Scenario {
        name: "inboxes-nothing-repeated",
        description: "clients that repeat nothing when an inbox had ended: forgotten requests are expected",
        count: 6,
        short: 1,
        rules: breaking(Rule::Forgotten),
        body: inboxes::nothing_repeated,
    },
    Scenario {
        name: "inboxes-wrong-deadline",
        description: "clients that count the lease of an answer from when they read it: overlaps are expected",
        count: 30,
        short: 6,
        rules: breaking(Rule::Overlap),
        body: inboxes::whole_lease,
    },
];
