//! What operators see and do: settings, ACL, INFO, COMMAND, loading, memory limits.

mod acl;
mod command_docs;
mod command_info;
mod config;
mod guarantees;
mod info_section;
mod keyspace_events;
mod logs;
mod memory_limits;
mod module_load;
