// Package agent tests the remote agent on a real control plane: what home
// clusters get, what becomes of their pods, and what they may not do.
package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

// bed is shared by the tests of this package; each uses home clusters of its own.
// Without control planes it is empty, so that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	program *fabric.Program
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true}); err != nil {
			return err
		}
		program, err = bed.StartAgent(ctx, quick)
		return err
	})
}

// away is how long a home must be silent to be away.
const away = 3 * time.Second

// quick makes the agent's patience fit a test.
func quick(config *agent.Config) {
	config.AwayAfter = away
	config.LeaseDuration = 6 * time.Second
}

// tenant is a home cluster with its own identity in west.
type tenant struct {
	t  *testing.T
	id string
	// client and remote act as the home cluster.
	client kubernetes.Interface
	remote *clients.RemoteClient
}

func newTenant(t *testing.T, mutate func(*remotev1alpha1.HomeCluster)) tenant {
	t.Helper()
	testbed.Require(t)
	id := "h" + rand.String(6)
	home := &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	home.Spec.Namespaces.Names = []string{"*"}
	if mutate != nil {
		mutate(home)
	}
	must.Create(t, bed.Agents.HomeClusters(), home)
	require.NoError(t, bed.AwaitTenant(t.Context(), id))
	x := tenant{t: t, id: id}
	x.login()
	return x
}

// login makes clients with a token of the home cluster's account.
func (x *tenant) login() {
	x.t.Helper()
	config, err := bed.West.ServiceAccountConfig(x.t.Context(), x.tenantNamespace(), keys.HomeAccount)
	require.NoError(x.t, err)
	x.client, err = kubernetes.NewForConfig(config)
	require.NoError(x.t, err)
	x.remote, err = clients.NewRemoteClient(config)
	require.NoError(x.t, err)
}

func (x tenant) tenantNamespace() string { return keys.TenantPrefix + x.id }

// request asks for a namespace as the home cluster does.
func (x tenant) request(name string) {
	x.t.Helper()
	eventually(x.t, "home may ask for namespaces", func() error {
		_, err := x.remote.NamespaceRequests(x.tenantNamespace()).Create(x.t.Context(), &remotev1alpha1.NamespaceRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: name},
		}, metav1.CreateOptions{})
		return err
	})
}

// namespace asks for a namespace of a new name and waits for it.
func (x tenant) namespace() string {
	x.t.Helper()
	name := "ns-" + rand.String(6)
	x.request(name)
	x.given(name)
	return name
}

func (x tenant) condition(name string) *metav1.Condition {
	x.t.Helper()
	request := must.Get(x.t, bed.Agents.NamespaceRequests(x.tenantNamespace()), name)
	return meta.FindStatusCondition(request.Status.Conditions, remotev1alpha1.Ready)
}

func (x tenant) given(name string) {
	x.t.Helper()
	eventually(x.t, "namespace "+name+" is given", func() error {
		condition := x.condition(name)
		if condition == nil || condition.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
}

// told waits until a request has a reason not to be Ready.
func (x tenant) told(name, reason string) string {
	x.t.Helper()
	var message string
	eventually(x.t, "the request says "+reason, func() error {
		condition := x.condition(name)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != reason {
			return fmt.Errorf("condition %+v", condition)
		}
		message = condition.Message
		return nil
	})
	return message
}
