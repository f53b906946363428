package kind

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	// long is how long a state may take to come about: images are there, so this
	// is no matter of seconds only on a machine that does much else.
	long = 3 * time.Minute
	// steady is how long something must stay as it is.
	steady = 15 * time.Second
	poll   = 500 * time.Millisecond

	system  = "lodestone-system"
	storage = "lodestone-storage"
	// image is that of all pods here: busybox, Redis, PostgreSQL and restic.
	image = "docker.io/lodestone-e2e/workload:2"
	// virtualNode is the node that stands for west.
	virtualNode = "west"
)

// The clusters; nil unless LODESTONE_KIND is set.
var home, west *cluster

func TestMain(m *testing.M) {
	if os.Getenv("LODESTONE_KIND") == "" {
		os.Exit(m.Run())
	}
	var err error
	if home, err = connect("home"); err == nil {
		west, err = connect("west")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "The clusters of the suite do not answer; run `make e2e-up`: %v\n", err)
		os.Exit(1)
	}
	code := m.Run()
	// What a failed test needs is left.
	if code == 0 {
		for _, what := range leftovers(context.Background()) {
			fmt.Fprintf(os.Stderr, "left behind: %s\n", what)
			code = 1
		}
	}
	os.Exit(code)
}

// cache is where the scripts keep what they make.
func cache() string {
	if directory := os.Getenv("KIND_CACHE"); directory != "" {
		return directory
	}
	directory, err := os.UserCacheDir()
	if err != nil {
		panic(err) // no home directory: nothing can have been brought up
	}
	return filepath.Join(directory, "lodestone", "kind")
}

// needsClusters skips a test unless the clusters are there, and keeps what explains
// its failure.
func needsClusters(t *testing.T) {
	t.Helper()
	if home == nil {
		t.Skip("needs two kind clusters: run make e2e")
	}
	t.Cleanup(func() {
		if t.Failed() {
			keepEvidence(t)
		}
	})
}
