//! A step of mdBook: see [`dlock_book::outside`]. mdBook hands over context and book as JSON, and takes the book back.

use std::io;
use std::path::PathBuf;

use dlock_book::outside::without_outside_links;
use serde_json::Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `supports <renderer>`: every renderer needs this.
    if std::env::args().nth(1).as_deref() == Some("supports") {
        return Ok(());
    }
    let (_context, mut book): (Value, Value) = serde_json::from_reader(io::stdin())?;
    mend(&mut book);
    serde_json::to_writer(io::stdout(), &book)?;
    Ok(())
}

/// Chapters are objects with a path and a content, wherever they stand in the book.
fn mend(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(mend),
        Value::Object(fields) => {
            let path = fields.get("path").and_then(Value::as_str).map(PathBuf::from);
            if let (Some(path), Some(Value::String(content))) = (path, fields.get_mut("content")) {
                *content = without_outside_links(&path, content);
            }
            fields.values_mut().for_each(mend);
        }
        _ => {}
    }
}
