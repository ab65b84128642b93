//! Parses Markdown pages: code blocks, links, headings.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page of Markdown.
pub struct Page {
    /// The file, relative to the root of the project.
    pub path: PathBuf,
    /// Code blocks, in order.
    pub blocks: Vec<Block>,
    /// Links and images.
    pub links: Vec<Link>,
    /// The anchors of its headings.
    pub anchors: BTreeSet<String>,
}

/// A code block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// The info string of the fence, or `""`.
    pub language: String,
    /// The text.
    pub code: String,
    /// Line number of the block, from 1.
    pub line: usize,
    /// HTML comments right before the block: instructions for the tests.
    pub notes: Vec<String>,
    /// The prose since the block or heading before.
    pub introduction: String,
}

/// A link or an image.
#[derive(Clone, Debug)]
pub struct Link {
    /// The target, as written.
    pub target: String,
    /// Line number of the link, from 1.
    pub line: usize,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// README.md and the pages of docs/.
pub fn all() -> Vec<Page> {
    let mut paths = vec![PathBuf::from("README.md")];
    collect(Path::new("docs"), &mut paths);
    paths[1..].sort();
    paths.iter().map(|path| Page::read(path)).collect()
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(root().join(directory)).expect("docs/ can be read");
    for entry in entries.flatten() {
        let path = directory.join(entry.file_name());
        if entry.path().is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}

impl Page {
    /// Reads a page. The path is relative to the root of the repository.
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(root().join(path));
        Self::parse(
            path,
            &text.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
    }

    /// Parses the text of a page.
    pub fn parse(path: &Path, text: &str) -> Self {
        let mut reader = Reader {
            text,
            ..Reader::default()
        };
        let parser = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
        for (event, range) in parser {
            reader.handle(event, range);
        }
        Self {
            path: path.to_path_buf(),
            blocks: reader.blocks,
            links: reader.links,
            anchors: reader.anchors,
        }
    }

    /// File and line of a block, for messages.
    pub fn place(&self, block: &Block) -> String {
        format!("{}:{}", self.path.display(), block.line)
    }
}

impl Block {
    /// The values of the comments `name: value` before the block.
    pub fn notes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let notes = self.notes.iter();
        notes.filter_map(move |note| note.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    }

    /// The first of [`Self::notes`].
    pub fn note<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.notes(name).next()
    }
}

/// Collects blocks, links and headings from the parser's events.
#[derive(Default)]
struct Reader<'a> {
    text: &'a str,
    blocks: Vec<Block>,
    links: Vec<Link>,
    anchors: BTreeSet<String>,
    /// Comments since the last visible text.
    notes: Vec<String>,
    introduction: String,
    block: Option<Block>,
    heading: Option<String>,
    comment: Option<String>,
}

impl Reader<'_> {
    fn line_at(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }

    fn handle(&mut self, event: Event, range: Range<usize>) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.block = Some(Block {
                    language,
                    line: self.line_at(range.start),
                    notes: std::mem::take(&mut self.notes),
                    introduction: std::mem::take(&mut self.introduction),
                    code: String::new(),
                });
            }
            Event::End(TagEnd::CodeBlock) => self.blocks.extend(self.block.take()),
            Event::Start(Tag::HtmlBlock) => self.comment = Some(String::new()),
            Event::Html(html) => {
                if let Some(comment) = &mut self.comment {
                    comment.push_str(&html);
                }
            }
            Event::End(TagEnd::HtmlBlock) => {
                let html = self.comment.take().unwrap_or_default();
                self.notes.extend(comments(&html));
            }
            Event::Start(Tag::Heading { .. }) => {
                self.heading = Some(String::new());
                self.introduction.clear();
            }
            Event::End(TagEnd::Heading(_)) => {
                let heading = self.heading.take().unwrap_or_default();
                self.add_anchor(&slug(&heading));
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                self.links.push(Link {
                    target: dest_url.to_string(),
                    line: self.line_at(range.start),
                });
            }
            Event::Text(text) | Event::Code(text) => self.handle_text(&text),
            Event::SoftBreak => self.introduction.push(' '),
            _ => {}
        }
    }

    fn handle_text(&mut self, text: &str) {
        if let Some(block) = &mut self.block {
            block.code.push_str(text);
        } else {
            self.notes.clear();
            if let Some(heading) = &mut self.heading {
                heading.push_str(text);
            } else {
                self.introduction.push_str(text);
            }
        }
    }

    /// Repeated headings are numbered: `errors`, `errors-1`, ...
    fn add_anchor(&mut self, slug: &str) {
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let free = std::iter::once(slug.to_owned())
            .chain(numbered)
            .find(|anchor| !self.anchors.contains(anchor));
        self.anchors.extend(free);
    }
}

/// The comments in some HTML.
fn comments(html: &str) -> impl Iterator<Item = String> {
    let parts = html.split("<!--").skip(1);
    parts.filter_map(|part| Some(part.split_once("-->")?.0.trim().to_owned()))
}

/// The anchor of a heading, as mdBook and GitHub generate it.
fn slug(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.map(|char| if char == ' ' { '-' } else { char })
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page::parse(Path::new("page.md"), text)
    }

    #[test]
    fn code_block_has_language_line_and_preceding_comments() {
        let page = page("Text.\n\n<!-- run: A -->\n<!-- run: B -->\n\n```text\nx\ny\n```\n\n```sh\nz\n```\n");
        let [first, second] = &page.blocks[..] else {
            panic!("two blocks");
        };
        assert_eq!((first.language.as_str(), first.line), ("text", 6));
        assert_eq!(first.code, "x\ny\n");
        assert_eq!(first.notes("run").collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(first.introduction, "Text.");
        assert!(second.notes.is_empty() && second.introduction.is_empty());
    }

    #[test]
    fn comment_followed_by_text_belongs_to_no_block() {
        let page = page("<!-- run: A -->\n\nText.\n\n```text\nx\n```\n");
        assert!(page.blocks[0].notes.is_empty());
    }

    #[test]
    fn repeated_headings_get_numbered_anchors() {
        let page = page("# DLOCK.INFO, and `x`\n\n## Errors\n\n## Errors\n");
        let anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["dlockinfo-and-x", "errors", "errors-1"]);
    }

    #[test]
    fn links_span_lines_and_are_ignored_in_code() {
        let page = page("a [b\nc](d.md#e) `[x](y)` ![p](q.svg)\n");
        let targets: Vec<_> = page.links.iter().map(|link| link.target.as_str()).collect();
        assert_eq!(targets, ["d.md#e", "q.svg"]);
    }
}
