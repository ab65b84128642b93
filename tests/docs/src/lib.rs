//! Tests of `docs/`. The Rust blocks of its pages are compiled as doc tests of the modules below; `tests/it` runs
//! all other blocks and checks the links.

/// The pages that contain Rust.
#[cfg(doctest)]
pub mod pages {
    #[doc = include_str!("../../../docs/client.md")]
    pub mod client {}
    #[doc = include_str!("../../../docs/recipes.md")]
    pub mod recipes {}
}
