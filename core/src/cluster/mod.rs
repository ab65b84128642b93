//! A cluster: its slots, the nodes that serve them, and fences that rise although slots move.

pub mod fences;
pub mod nodes;
pub mod slots;

use fences::ClusterFences;
use nodes::LocalSlots;

/// What a node knows of its cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The fences of the other nodes.
    pub fences: ClusterFences,
    /// The slots that were here at the last look.
    pub slots: LocalSlots,
}
