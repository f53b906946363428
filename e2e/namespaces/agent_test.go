package namespaces

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

// The owner of west gives namespaces of one pattern only; refusal is in what the
// remote agent says of others.
const (
	allowed       = "shop-*"
	refusedPrefix = "refused-"
	refusal       = "namespaces named shop-* only"
)

// tenancy is west as its owner sees it: the remote agent, and home as its tenant.
type tenancy struct {
	homeID  string
	program *fabric.Program
}

// serve starts west's remote agent.
func (o *tenancy) serve(ctx context.Context) (err error) {
	o.program, err = bed.StartAgent(ctx, func(c *agent.Config) { c.LeaderElect = false })
	return err
}

// admit makes home a tenant of west and returns its kubeconfig.
func (o *tenancy) admit(ctx context.Context) (kubeconfig []byte, err error) {
	if o.homeID, err = bed.HomeID(ctx); err != nil {
		return nil, err
	}
	return bed.Tenant(ctx, func(home *remotev1alpha1.HomeCluster) { home.Spec.Namespaces.Names = []string{allowed} })
}

// silence stops the remote agent until speak is called or the test ends.
func (o *tenancy) silence(t *testing.T) (speak func()) {
	t.Helper()
	require.NoError(t, o.program.Stop())
	silent := true
	speak = func() {
		if silent {
			silent = false
			require.NoError(t, o.serve(context.Background()))
		}
	}
	t.Cleanup(speak)
	return speak
}

func (o *tenancy) tenant() string { return keys.TenantPrefix + o.homeID }

// kubeconfig returns a new kubeconfig of home's identity in west.
func (o *tenancy) kubeconfig(ctx context.Context) ([]byte, error) {
	return bed.West.ServiceAccountKubeconfig(ctx, o.tenant(), keys.HomeAccount)
}
