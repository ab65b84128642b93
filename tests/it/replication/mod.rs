//! What replicas get and do: the stream, promotions, internal commands.

mod internal_commands;
mod min_replicas_to_write;
mod promotion;
mod replicas;
mod replication_skipped_without_consumers;
mod stream;
mod sync_replicas;
