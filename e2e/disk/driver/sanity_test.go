package driver

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"google.golang.org/grpc"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

// TestTheDriverDoesWhatTheSpecificationSays runs the specification's own suite, with
// real devices and mounts.
func TestTheDriverDoesWhatTheSpecificationSays(t *testing.T) {
	o := newMachine(t).node.options
	o.Pool = 1000 * gibibyte // volumes of no stated size get 10 GiB from the suite, all of them sparse
	connection, _ := serve(t, o)
	config := sanity.NewTestConfig()
	// The suite waits for its connection to change, for ever if it is there already.
	config.Address = "passthrough:///" + strings.TrimPrefix(connection.Target(), "unix://")
	config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(func(ctx context.Context, socket string) (net.Conn, error) {
		time.Sleep(200 * time.Millisecond)
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}))
	config.TargetPath = filepath.Join(t.TempDir(), "target")
	config.StagingPath = filepath.Join(t.TempDir(), "staging")
	config.TestVolumeSize = 64 * pool.Mebibyte
	config.TestVolumeExpandSize = 128 * pool.Mebibyte
	sanity.Test(t, config)
}
