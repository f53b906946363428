// Command lodestone-provisioner gives the claims of virtual storage classes
// their volumes, in the cluster where their first pod is scheduled.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/provisioner/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
