//! All scenarios and their rules, the quick ones first.

use super::group::Protection;
use super::partition::OldPrimary;
use super::{
    Scenario, clock, cluster, failover, inboxes, network, one_server, partition, planned, quorum, restart,
    sentinel, slot_migration, snapshots,
};
use crate::checkers::Rule;
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

/// As [`OVERLAPPING`], for fences.
const FALLING: Rules = Rules {
    expected: Some(Rule::Fences),
    ..LOSSY
};

/// A network that may drop replies.
const BAD_NETWORK: Rules = Rules {
    may_miss_replies: true,
    ..Rules::STRICT
};

/// Only what clients are promised is recorded, or other rules apply: no run of the specification.
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
        name: "network",
        description: "a proxy delays, freezes one or both directions, cuts inside requests and replies",
        count: 500,
        short: 8,
        rules: BAD_NETWORK,
        body: |run| network::bad(run, Workload::mixed),
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
        name: "power-failure-always",
        description: "a power failure loses what was not synced, with appendfsync always: nothing is lost",
        count: 150,
        short: 3,
        rules: Rules::STRICT,
        body: |run| restart::restarts(run, &["always"], restart::NO_GRACE, Workload::mixed),
    },
    Scenario {
        name: "power-failure-always-guard",
        description: "the same; holders write late, through GUARD and without",
        count: 60,
        short: 4,
        rules: writing(Rules::STRICT),
        body: |run| restart::restarts(run, &["always"], restart::NO_GRACE, Workload::writing),
    },
    Scenario {
        name: "power-failure",
        description: "the same with appendfsync everysec and no: overlaps are expected",
        count: 40,
        short: 6,
        rules: OVERLAPPING,
        body: |run| restart::restarts(run, &["everysec", "no"], restart::NO_GRACE, Workload::mixed),
    },
    Scenario {
        name: "power-failure-grace",
        description: "the same with a grace period",
        count: 80,
        short: 2,
        rules: unspecified(LOSSY),
        body: |run| restart::restarts(run, &["everysec", "no"], restart::GRACE, Workload::mixed),
    },
    Scenario {
        name: "restart-no-data-grace",
        description: "kill -9 and restart without persistence, with a grace period",
        count: 40,
        short: 2,
        rules: unspecified(LOSSY),
        body: |run| restart::restarts(run, &[], restart::GRACE, Workload::mixed),
    },
    Scenario {
        name: "restart-no-data",
        description: "the same without a grace period: overlaps are expected",
        count: 20,
        short: 4,
        rules: OVERLAPPING,
        body: |run| restart::restarts(run, &[], restart::NO_GRACE, Workload::mixed),
    },
    Scenario {
        name: "failover-grace",
        description: "the primary is killed with unreplicated writes, with a grace period of the longest lease",
        count: 500,
        short: 3,
        rules: LOSSY,
        body: |run| failover::failovers(run, Protection::Grace, Workload::mixed),
    },
    Scenario {
        name: "failover",
        description: "the same without a grace period: overlaps are expected",
        count: 60,
        short: 6,
        rules: OVERLAPPING,
        body: |run| failover::failovers(run, Protection::None, Workload::mixed),
    },
    Scenario {
        name: "failover-synchronous",
        description: "the same, but grants are told only when all replicas have them: no overlap",
        count: 300,
        short: 6,
        rules: unspecified(LOSSY),
        body: |run| failover::failovers(run, Protection::Synchronous, Workload::mixed),
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
        body: |run| sentinel::failovers(run, Protection::Grace),
    },
    Scenario {
        name: "failover-sentinel-synchronous",
        description: "the primary is killed or stopped; grants are told when all replicas have them, no grace period",
        count: 12,
        short: 2,
        rules: unspecified(LOSSY),
        body: |run| sentinel::failovers(run, Protection::Synchronous),
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
        description: "slots migrate atomically (Valkey 9), some cancelled or slower than a lease",
        count: 100,
        short: 3,
        rules: Rules::STRICT,
        body: |run| slot_migration::migrations(run, false),
    },
    Scenario {
        name: "cluster-slot-migration-faults",
        description: "the same with replicas and logs; nodes are killed and restarted, or fail over, during migrations",
        count: 60,
        short: 3,
        rules: Rules::STRICT,
        body: |run| slot_migration::migrations(run, true),
    },
    Scenario {
        name: "cluster-failover",
        description: "a primary of a cluster is killed, its replica takes over, with a grace period",
        count: 8,
        short: 1,
        rules: LOSSY,
        body: |run| cluster::failovers(run, Protection::Grace),
    },
    Scenario {
        name: "cluster-failover-synchronous",
        description: "the primary is killed or stopped; grants are told when its replica has them, no grace period",
        count: 8,
        short: 2,
        rules: unspecified(LOSSY),
        body: |run| cluster::failovers(run, Protection::Synchronous),
    },
    Scenario {
        name: "partition",
        description: "an isolated old primary keeps serving, with a grace period: overlaps are expected",
        count: 30,
        short: 1,
        rules: OVERLAPPING,
        body: |run| partition::partitions(run, OldPrimary::KeepsServing, Workload::mixed),
    },
    Scenario {
        name: "partition-min-replicas",
        description: "the same with min-replicas-to-write and a lag limit below the failover time",
        count: 36,
        short: 1,
        rules: LOSSY,
        body: |run| partition::partitions(run, OldPrimary::NeedsReplica, Workload::mixed),
    },
    Scenario {
        name: "partition-synchronous",
        description: "the same, grants are told only when the replica has them, no grace period and no wait: no overlap",
        count: 60,
        short: 2,
        rules: unspecified(LOSSY),
        body: |run| partition::partitions(run, OldPrimary::NeedsAcknowledgement, Workload::mixed),
    },
    Scenario {
        name: "quorum",
        description: "five servers: restarts, stops, bad networks, readers cut, clients split from some, holders paused",
        count: 300,
        short: 12,
        rules: unspecified(LOSSY),
        body: |run| quorum::play(run, quorum::DURABLE),
    },
    Scenario {
        name: "quorum-three",
        description: "the same with three servers, which clients name in different orders",
        count: 300,
        short: 8,
        rules: unspecified(LOSSY),
        body: |run| quorum::play(run, quorum::THREE_SERVERS),
    },
    Scenario {
        name: "quorum-no-data-grace",
        description: "the same, servers restart without data, with a grace period and clocks that differ by less",
        count: 100,
        short: 6,
        rules: unspecified(LOSSY),
        body: |run| quorum::play(run, quorum::NO_DATA_WITH_GRACE),
    },
    Scenario {
        name: "quorum-no-data",
        description: "the same without a grace period: overlaps are expected",
        count: 30,
        short: 8,
        rules: unspecified(OVERLAPPING),
        body: |run| quorum::play(run, quorum::NO_DATA),
    },
    Scenario {
        name: "quorum-clocks-set-back",
        description: "with a grace period, but clocks are set back by an hour: fences may decrease",
        count: 12,
        short: 6,
        rules: unspecified(FALLING),
        body: |run| quorum::play(run, quorum::CLOCKS_SET_BACK),
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
        name: "failover-guarded",
        description: "unreplicated writes are lost: late writes are in order with GUARD, not without",
        count: 60,
        short: 3,
        rules: writing(LOSSY),
        body: |run| failover::failovers(run, Protection::None, Workload::writing),
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
        body: |run| partition::partitions(run, OldPrimary::KeepsServing, Workload::writing),
    },
    Scenario {
        name: "inboxes",
        description: "processes of 200 tasks with the Rust client are killed, stopped, cut off; the server loses its power, pauses",
        count: 250,
        short: 16,
        rules: unspecified(Rules::STRICT),
        body: inboxes::one_server,
    },
    Scenario {
        name: "inboxes-failover-grace",
        description: "the same; the primary is killed with unreplicated writes, with a grace period",
        count: 40,
        short: 3,
        rules: unspecified(LOSSY),
        body: |run| inboxes::failovers(run, Protection::Grace),
    },
    Scenario {
        name: "inboxes-failover",
        description: "the same without a grace period: overlaps are expected",
        count: 20,
        short: 3,
        rules: unspecified(OVERLAPPING),
        body: |run| inboxes::failovers(run, Protection::None),
    },
    Scenario {
        name: "inboxes-failover-synchronous",
        description: "the same, but grants are told only when all replicas have them: no overlap",
        count: 40,
        short: 3,
        rules: unspecified(LOSSY),
        body: |run| inboxes::failovers(run, Protection::Synchronous),
    },
    Scenario {
        name: "inboxes-failover-planned",
        description: "the same with planned failovers",
        count: 30,
        short: 2,
        rules: unspecified(Rules::STRICT),
        body: inboxes::planned_failovers,
    },
    Scenario {
        name: "inboxes-resharding",
        description: "the same while slots of a cluster migrate back and forth",
        count: 100,
        short: 6,
        rules: unspecified(Rules::STRICT),
        body: inboxes::resharding,
    },
    Scenario {
        name: "inboxes-slot-migration",
        description: "the same while slots migrate atomically (Valkey 9)",
        count: 60,
        short: 4,
        rules: unspecified(Rules::STRICT),
        body: inboxes::slot_migrations,
    },
];
