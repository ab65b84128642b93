//! All that the server can know about a command, so that COMMAND INFO and DOCS, ACLs, cluster clients and the hints of
//! redis-cli are right.

use std::ffi::{CStr, c_int};

/// Everything about a command but what it does.
pub struct Metadata {
    pub name: &'static CStr,
    pub flags: &'static CStr,
    /// The number of arguments with the name, negative = at least that many.
    pub arity: c_int,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    /// What it does with its own key, which is the first argument.
    pub key: Option<KeyUse>,
    pub arguments: &'static [Argument],
    /// The server's own ACL categories, which it does not derive from the flags of a module's command.
    pub categories: &'static str,
    /// The module's own ACL category, if the command is in it.
    pub own_category: Option<&'static str>,
}

pub enum KeyUse {
    Read,
    Update,
    /// Every argument is a key.
    UpdateAll,
}

/// An argument as COMMAND DOCS shows it.
pub struct Argument {
    pub(super) name: &'static CStr,
    pub(super) kind: Kind,
    pub(super) token: Option<&'static CStr>,
    pub(super) optional: bool,
    pub(super) multiple: bool,
    /// Whether the server is told of it.
    pub(super) is_shown: fn() -> bool,
}

pub(super) enum Kind {
    Key,
    String,
    Integer,
    /// A keyword without a value.
    Flag,
    OneOf(&'static [Argument]),
    /// All of them, in this order.
    Block(&'static [Argument]),
}

impl Argument {
    pub const fn key(name: &'static CStr) -> Self {
        Self::new(name, Kind::Key)
    }

    pub const fn string(name: &'static CStr) -> Self {
        Self::new(name, Kind::String)
    }

    pub const fn integer(name: &'static CStr) -> Self {
        Self::new(name, Kind::Integer)
    }

    pub const fn flag(name: &'static CStr, token: &'static CStr) -> Self {
        Self::new(name, Kind::Flag).token(token)
    }

    pub const fn optional_one_of(name: &'static CStr, arguments: &'static [Argument]) -> Self {
        Self::new(name, Kind::OneOf(arguments)).optional()
    }

    pub const fn block(name: &'static CStr, arguments: &'static [Argument]) -> Self {
        Self::new(name, Kind::Block(arguments))
    }

    /// The keyword before the argument.
    pub const fn token(self, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    pub const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// It may be repeated.
    pub const fn multiple(self) -> Self {
        Self {
            multiple: true,
            ..self
        }
    }

    /// COMMAND DOCS shows it only if this is true when the module is loaded.
    pub const fn shown_if(self, is_shown: fn() -> bool) -> Self {
        Self { is_shown, ..self }
    }

    const fn new(name: &'static CStr, kind: Kind) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            is_shown: || true,
        }
    }
}
