// Package rights tests that Lodestone's roles give what is used and no more: it
// has the API servers of real control planes note each request, goes through what
// a claim can go through, and compares that with the roles of deploy/.
package rights

import (
	"context"
	"testing"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// bed is empty without control planes, so that tests get as far as to skip.
var bed = &fabric.Fabric{}

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, AuditAll: true}); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		lead := func(c *provisioner.Config) {
			c.LeaderElect = true
			c.LeaseDuration = 4 * time.Second
		}
		if _, err := bed.StartProvisioner(ctx, lead); err != nil {
			return err
		}
		return bed.Peer(ctx)
	})
}
