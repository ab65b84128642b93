//! Which file of a crate imports which, by `use` or by a path in its code. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The importing and the imported file: the line of the first import.
pub type Imports = BTreeMap<(String, String), usize>;

/// `a::b` as `["a", "b"]`.
type ModulePath = Vec<String>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Use,
    Reexport,
}

/// A path in the source of a module.
struct Mention {
    module: ModulePath,
    path: ModulePath,
    kind: Kind,
    line: usize,
}

#[derive(Default)]
struct Crate {
    /// The file of each module, also of those that are a part of a file.
    files: BTreeMap<ModulePath, String>,
    mentions: Vec<Mention>,
    /// Modules and the names in their code, other than in `use`.
    names: BTreeSet<(ModulePath, String)>,
}

/// The imports between the files of a crate. `source` reads a file if there is one.
pub fn imports(root: &str, source: &dyn Fn(&str) -> Option<String>) -> Imports {
    let mut parsed = Crate::default();
    parsed.read(root.to_owned(), Vec::new(), source);
    let mut imports = Imports::new();
    for mention in &parsed.mentions {
        let from = &parsed.files[&mention.module];
        for to in parsed.targets(mention).into_iter().filter(|to| to != from) {
            imports.entry((from.clone(), to)).or_insert(mention.line);
        }
    }
    imports
}

impl Crate {
    /// Parses the file of a module, and those of the modules that it declares.
    fn read(&mut self, file: String, module: ModulePath, source: &dyn Fn(&str) -> Option<String>) {
        let text = source(&file).unwrap_or_else(|| panic!("{file} is missing"));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        self.files.insert(module.clone(), file);
        let mut declared = Vec::new();
        self.scan(tokens, &module, (&[], Kind::Code), &mut declared);
        let root = &self.files[&ModulePath::new()];
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        for module in declared {
            let path = format!("{folder}/{}", module.join("/"));
            let files = [format!("{path}.rs"), format!("{path}/mod.rs")];
            let file = files.into_iter().find(|file| source(file).is_some());
            self.read(
                file.unwrap_or_else(|| panic!("{path}.rs is missing")),
                module,
                source,
            );
        }
    }

    /// Collects the paths in these tokens, which continue `prefix`, and the modules with files of their own.
    fn scan(
        &mut self,
        tokens: TokenStream,
        module: &ModulePath,
        (prefix, outer): (&[String], Kind),
        declared: &mut Vec<ModulePath>,
    ) {
        let tokens = Tokens(tokens.into_iter().collect());
        let (mut at, mut kind) = (0, outer);
        while let Some(token) = tokens.0.get(at) {
            match tokens.text(at).as_str() {
                "#" if tokens.is_test_only(at + 1) => at = tokens.end_of_item(at + 2),
                // `pub(in path)` imports nothing.
                "pub" if tokens.text(at + 1) == "(" => at += 1,
                "use" => {
                    let before = tokens.text(at.wrapping_sub(1));
                    let is_reexport = before == "pub" || before == "(";
                    kind = if is_reexport { Kind::Reexport } else { Kind::Use };
                }
                ";" => kind = outer,
                "as" if kind != Kind::Code => at += 1,
                "mod" if tokens.is_name(at + 1) => {
                    let child = [&module[..], &[tokens.text(at + 1)]].concat();
                    at += 2;
                    if let Some(body) = tokens.group(at) {
                        self.files.insert(child.clone(), self.files[module].clone());
                        self.scan(body, &child, (&[], Kind::Code), declared);
                    } else {
                        declared.push(child);
                    }
                }
                _ if tokens.is_name(at) => {
                    let line = token.span().start().line;
                    let names = tokens.path(&mut at);
                    if kind == Kind::Code {
                        self.names.insert((module.clone(), names[0].clone()));
                    }
                    let path = [prefix, &names].concat();
                    if kind != Kind::Code && tokens.is_separator(at + 1) && tokens.text(at + 3) == "{" {
                        at += 3;
                        let items = tokens.group(at).unwrap_or_default();
                        self.scan(items, module, (&path, kind), declared);
                    } else if kind != Kind::Code || path.len() > 1 {
                        let module = module.clone();
                        self.mentions.push(Mention {
                            module,
                            path,
                            kind,
                            line,
                        });
                    }
                }
                _ => {
                    let inner = tokens.group(at).unwrap_or_default();
                    self.scan(inner, module, (&[], kind), declared);
                }
            }
            at += 1;
        }
    }

    /// A path from the root of the crate, unless it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let (_, parent) = module.split_last()?;
                let is_further_up = rest.first().is_some_and(|next| next == "super");
                if is_further_up {
                    self.absolute(parent, rest)
                } else {
                    Some([parent, rest].concat())
                }
            }
            child => {
                let child = [module, &[child.to_owned()]].concat();
                self.files.contains_key(&child).then(|| [module, path].concat())
            }
        }
    }

    /// The files that a mention imports: that of the module it names, and the one which this re-exports the item from.
    fn targets(&self, mention: &Mention) -> Vec<String> {
        let mut targets = Vec::new();
        let mut next = self.absolute(&mention.module, &mention.path);
        // A parent depends on the children that it re-exports only if it uses them.
        if mention.kind == Kind::Reexport
            && next
                .as_ref()
                .is_some_and(|path| path.starts_with(&mention.module))
        {
            let name = mention.path.last().cloned().unwrap_or_default();
            next = next.filter(|_| self.names.contains(&(mention.module.clone(), name)));
        }
        while let Some(path) = next {
            let is_module = |length: &usize| self.files.contains_key(&path[..*length]);
            let length = (0..=path.len()).rev().find(is_module).unwrap_or_default();
            let (module, item) = path.split_at(length);
            targets.push(self.files[module].clone());
            next = item.split_first().and_then(|(name, rest)| {
                let is_source = |other: &&Mention| {
                    other.kind == Kind::Reexport && other.module == module && other.path.last() == Some(name)
                };
                let source = self.mentions.iter().find(is_source)?;
                Some([self.absolute(module, &source.path)?, rest.to_vec()].concat())
            });
        }
        targets
    }
}

struct Tokens(Vec<TokenTree>);

impl Tokens {
    /// The token, or the opening delimiter of a group.
    fn text(&self, at: usize) -> String {
        match self.0.get(at) {
            None => String::new(),
            Some(TokenTree::Group(group)) => match group.delimiter() {
                Delimiter::Parenthesis => "(".to_owned(),
                Delimiter::Brace => "{".to_owned(),
                Delimiter::Bracket | Delimiter::None => "[".to_owned(),
            },
            Some(token) => token.to_string(),
        }
    }

    fn is_name(&self, at: usize) -> bool {
        matches!(self.0.get(at), Some(TokenTree::Ident(_)))
    }

    fn is_separator(&self, at: usize) -> bool {
        self.text(at) == ":" && self.text(at + 1) == ":"
    }

    fn group(&self, at: usize) -> Option<TokenStream> {
        match self.0.get(at)? {
            TokenTree::Group(group) => Some(group.stream()),
            _ => None,
        }
    }

    /// The path that begins here. Moves to its last name.
    fn path(&self, at: &mut usize) -> ModulePath {
        let mut path = vec![self.text(*at)];
        while self.is_separator(*at + 1) && self.is_name(*at + 3) {
            *at += 3;
            path.push(self.text(*at));
        }
        path
    }

    /// Whether this is the rest of `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
    fn is_test_only(&self, at: usize) -> bool {
        let attribute = self.group(at).unwrap_or_default().to_string().replace(' ', "");
        attribute.starts_with("cfg(test") || attribute.starts_with("cfg(all(test")
    }

    fn end_of_item(&self, at: usize) -> usize {
        let is_end = |at: &usize| matches!(self.text(*at).as_str(), ";" | "{");
        (at..self.0.len()).find(is_end).unwrap_or(self.0.len())
    }
}
