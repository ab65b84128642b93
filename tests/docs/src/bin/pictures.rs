//! Draws the pictures of the book into `docs/pictures/`.

use std::io;

use dlock_book::{page, pictures};

fn main() -> io::Result<()> {
    let folder = page::root().join("docs/pictures");
    std::fs::create_dir_all(&folder)?;
    for (file, text) in pictures::all() {
        std::fs::write(folder.join(file), text)?;
    }
    Ok(())
}
