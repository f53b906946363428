// Command lodestone-remote-agent runs in a remote cluster, for its owner: it gives home clusters
// the namespaces and rights that the owner allows, and runs their pods.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/remoteagent/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
