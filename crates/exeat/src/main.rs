//! The `exeat` command.

mod stub_agent;

use clap::Parser;

/// Governed gateway and coordinator for agent-to-agent work.
#[derive(Parser)]
#[command(name = "exeat", version)]
enum Command {
    /// A scriptable, hostile foreign agent for demos and tests.
    StubAgent(stub_agent::StubAgentArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command::StubAgent(args) = Command::parse();
    stub_agent::run(args, async {
        let _ = tokio::signal::ctrl_c().await;
    })
    .await
}
