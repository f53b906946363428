// Command lodestone-virtualnode registers a node of the home cluster for each
// remote cluster, and has the pods of that node run there.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/virtualnode/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
