package crash

import (
	"context"
	"fmt"
	"maps"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
)

// managerQPS is the request rate of the controller managers.
const managerQPS = 500

// World is two control planes, or three, with two gates to them, on which cases run.
type World struct {
	Bed    *fabric.Fabric
	ledger *ledger
	binary string
	// dynamic are clients with all rights, for snapshots.
	dynamic map[*testbed.Cluster]dynamic.Interface
	gates   map[int]*gate
	// kubeconfigs are those of the home cluster and of west, by gate.
	kubeconfigs map[int]map[string][]byte
	home        *watched
	remotes     []*remote
	addresses   []string
	started     int
	say         func(format string, args ...any)
	limits      limits
	// moves is nil in a world without movers, agent empty in one in which the remote agent
	// meets no faults, else the path of its program.
	moves *volumemoves.Client
	// store is nil before content was to travel through it; stored: it does now.
	store  *store.Server
	stored bool
	agent  string
	// users is the kubeconfig of an administrator of both clusters.
	users *clientcmdapi.Config
}

// NewWorld starts the control planes; they end with ctx or with Stop. say is told
// how the work goes on.
func NewWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	w, err := newWorld(ctx, say, fabric.Options{})
	if err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// newWorld starts a bed, which has west.
func newWorld(ctx context.Context, say func(format string, args ...any), o fabric.Options) (*World, error) {
	o.ControllerManagerQPS = managerQPS
	bed, err := fabric.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return &World{
		Bed: bed, remotes: []*remote{{name: "west", bed: bed}},
		ledger: newLedger(), gates: map[int]*gate{}, kubeconfigs: map[int]map[string][]byte{}, say: say, limits: ofClaims,
	}, nil
}

// Stop ends the control planes.
func (w *World) Stop() {
	for _, g := range w.gates {
		g.close()
	}
	for _, remote := range w.remotes {
		remote.bed.Stop()
	}
	if w.store != nil {
		w.store.Stop()
	}
}

func (w *World) prepare(ctx context.Context) (err error) {
	if err := w.defineSnapshots(ctx); err != nil {
		return err
	}
	if err := w.makeAttributes(ctx); err != nil {
		return err
	}
	remote, err := w.Bed.WestKubeconfig(ctx)
	if err != nil {
		return err
	}
	if err := w.open(ctx, map[string][]byte{"west": remote}); err != nil {
		return err
	}
	return w.makeClasses(ctx)
}

// open watches all clusters, and registers the remote ones through gate 1, with the
// kubeconfigs that home has there.
func (w *World) open(ctx context.Context, remotes map[string][]byte) (err error) {
	if w.binary, err = w.Bed.BuildProvisioner(ctx); err != nil {
		return err
	}
	if err := w.observe(ctx); err != nil {
		return err
	}
	account, err := w.Bed.ProvisionerKubeconfig(ctx)
	if err != nil {
		return err
	}
	kubeconfigs := maps.Clone(remotes)
	kubeconfigs["home"] = account
	if err := w.openGates(kubeconfigs); err != nil {
		return err
	}
	for _, remote := range w.remotes {
		if err := w.Bed.Register(ctx, remote.name, w.kubeconfigs[1][remote.name]); err != nil {
			return err
		}
	}
	return nil
}

// observe watches all clusters.
func (w *World) observe(ctx context.Context) (err error) {
	if w.home, err = watch(ctx, w.Bed.Home, true, w.ledger); err != nil {
		return err
	}
	path, err := w.Bed.Contexts()
	if err != nil {
		return err
	}
	if w.users, err = clientcmd.LoadFromFile(path); err != nil {
		return fmt.Errorf("read the kubeconfig of both clusters: %w", err)
	}
	for _, remote := range w.remotes {
		if remote.watched, err = watch(ctx, remote.bed.West, false, w.ledger); err != nil {
			return err
		}
	}
	return nil
}

// openGates makes both gates, with kubeconfigs that lead through them: of home, of the
// remote clusters, and of the agent in west.
func (w *World) openGates(kubeconfigs map[string][]byte) error {
	clusters := map[string]*rest.Config{"home": w.Bed.Home.AdminConfig()}
	for _, remote := range w.remotes {
		clusters[remote.name] = remote.bed.West.AdminConfig()
	}
	for number := 1; number <= 2; number++ {
		g, err := newGate(number, w.ledger, clusters)
		if err != nil {
			return err
		}
		w.gates[number] = g
		w.kubeconfigs[number] = map[string][]byte{}
		for of, kubeconfig := range kubeconfigs {
			cluster := of
			if of == "agent" {
				cluster = "west"
			}
			if w.kubeconfigs[number][of], err = g.through(cluster, kubeconfig); err != nil {
				return err
			}
		}
		address, err := w.Bed.Home.ReserveAddress()
		if err != nil {
			return err
		}
		w.addresses = append(w.addresses, address)
	}
	return nil
}

// gives says whether west gives namespaces on request.
func (w *World) gives() bool { return w.moves != nil || w.agent != "" }

// newNamespaces makes the namespaces of a case, which home may use in west.
func (w *World) newNamespaces(ctx context.Context, c *Case) error {
	if w.gives() {
		// The remote agent makes that of west.
		return w.newHomeNamespace(ctx, c)
	}
	for cluster, labels := range map[*testbed.Cluster]map[string]string{w.Bed.Home: {keys.Offload: keys.OffloadEnabled}, w.Bed.West: nil} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: labels}}
		if _, err := cluster.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make namespace %s of %s: %w", c.Namespace, cluster.Name(), err)
		}
	}
	return w.Bed.BindRole(ctx, c.Namespace)
}

// awaitRights waits until the API server of west knows home's rights in a case's
// namespace: a claim that comes before is sent elsewhere.
func (w *World) awaitRights(ctx context.Context, c *Case) error {
	if w.gives() {
		return w.awaitPlaces(ctx, c)
	}
	for ctx.Err() == nil {
		review, err := w.Bed.West.Client().AuthorizationV1().LocalSubjectAccessReviews(c.Namespace).Create(ctx, &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               fabric.WestUser,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: "create", Resource: "persistentvolumeclaims"},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for home's rights in %s: %w", c.Namespace, err)
		}
		if review.Status.Allowed {
			return nil
		}
		time.Sleep(often)
	}
	return ctx.Err()
}

func newName() string { return prefix + rand.String(8) }
