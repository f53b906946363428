// Command lodestone-mover is one end of a volume's move: it reads the source volume
// or writes the target volume.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lodestone-storage/lodestone/mover/app"
)

func main() {
	if app.RunHelper(os.Args[1:]) {
		return
	}
	os.Exit(cli.Run(app.NewCommand()))
}
