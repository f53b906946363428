// Command kubectl-lodestone is a kubectl plugin: it peers clusters, shows what
// became of them, and says why a pod or a claim waits.
package main

import (
	"os"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
)

func main() {
	os.Exit(cmd.Main())
}
