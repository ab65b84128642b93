use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// How a driver is started: the kit appends the address of its server.
#[derive(Clone, Debug)]
pub struct Launch {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(String, OsString)>,
}

impl Launch {
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    pub fn with(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub fn in_environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub fn command(&self, address: &str) -> Command {
        let mut command = Command::new(&self.program);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(&self.arguments).arg(address).envs(environment);
        command
    }
}
