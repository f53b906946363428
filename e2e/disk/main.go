// Command disk is a CSI driver for tests: volumes are files in a directory, on
// nodes loop devices. See package driver.
package main

import (
	"os"

	"github.com/lodestone-storage/lodestone/e2e/disk/driver"
)

func main() {
	os.Exit(driver.Main(os.Args[1:]))
}
