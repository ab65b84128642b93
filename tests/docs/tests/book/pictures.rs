//! The pictures in `docs/pictures/` are those that the program draws.

use dlock_book::{page, pictures};

#[test]
fn the_pictures_are_what_the_program_draws() {
    for (file, drawn) in pictures::all() {
        let path = page::root().join("docs/pictures").join(file);
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == drawn,
            "docs/pictures/{file} is an old one: run `make pictures`"
        );
    }
}
