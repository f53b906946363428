// Command lodestone-extender is a kube-scheduler extender that keeps pods near
// their data.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/extender/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
