// Command lodestone-network runs on each node of a cluster whose pods reach those of other clusters, and is reached by them.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/network/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
