//! The book in `docs/`: what reads its pages, draws its pictures, and mends its links when it is built.
//!
//! The tests of this package try every code block of the pages. Those in Rust are compiled as tests of the
//! documentation of `chapters`.

pub mod outside;
pub mod page;
pub mod pictures;

/// The pages with blocks in Rust.
#[cfg(doctest)]
pub mod chapters {
    #[doc = include_str!("../../../docs/client.md")]
    pub mod client {}
    #[doc = include_str!("../../../docs/recipes.md")]
    pub mod recipes {}
}
