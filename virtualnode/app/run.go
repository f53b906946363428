package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/virtualnode/kubelet"
	"github.com/lodestone-storage/lodestone/virtualnode/links"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
	"github.com/lodestone-storage/lodestone/virtualnode/pods"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/reflector"
	"github.com/lodestone-storage/lodestone/virtualnode/registry"
	"github.com/lodestone-storage/lodestone/virtualnode/services"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Run runs the program until ctx ends, and then returns nil once every step that
// was begun is done and leadership is given up. An error means that it could not
// start or lost its leadership.
func Run(ctx context.Context, config *Config) error {
	process, err := program.Start(ctx, config.Home, config.Options.Options, program.Settings{Name: "lodestone-virtualnode", QPS: 300,
		Burst: 600})
	if err != nil {
		return err
	}
	defer process.Stop()
	// Callers of the kubelet API need no credentials to cause reviews of theirs. So reviews have a
	// rate limit of their own.
	judge, err := kubernetes.NewForConfig(process.Limited(50, 100))
	if err != nil {
		return fmt.Errorf("make client that judges requests: %w", err)
	}
	remotes, err := clients.NewRemoteClusters(process.Access)
	if err != nil {
		return err
	}
	joined, err := clients.NewNetworkLinks(process.Access, keys.NetworkNamespace)
	if err != nil {
		return err
	}
	homeID, homeUID, err := process.HomeID(ctx, config.ClusterID)
	if err != nil {
		return err
	}

	factory := informers.NewSharedInformerFactoryWithOptions(process.Client, 0, informers.WithTransform(transform))
	secrets := informers.NewSharedInformerFactoryWithOptions(process.Client, 0, informers.WithNamespace(config.Namespace),
		informers.WithTransform(controller.DropManagedFields))
	nodes, pods := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods().Informer()
	kubeconfigs := secrets.Core().V1().Secrets().Informer()
	objects := clients.NewRemoteClusterInformer(remotes)
	if config.Workers == nil {
		config.Workers = workers
	}
	measured, err := links.NewMetrics(process.Metrics)
	if err != nil {
		return err
	}
	linker := &links.Linker{Home: joined, Remotes: remotes, Objects: objects, Metrics: measured}
	work, err := config.Workers(Shared{
		Home: process.Client, Informers: factory, Metrics: process.Metrics, Recorder: process.Recorder,
		Links: linker,
	})
	if err != nil {
		return err
	}
	work, shared, err := config.exchange(process, homeID, factory, objects, work)
	if err != nil {
		return err
	}
	counts := registry.NewMetrics(process.Metrics)
	clusters := registry.New(registry.Config{
		Home: process.Client, Remotes: remotes, Objects: objects, Secrets: kubeconfigs,
		Namespace: config.Namespace, HomeID: homeID, HomeUID: homeUID,
		Node: node.Config{
			Home: process.Client, Nodes: nodes, Address: config.NodeIP, Probe: config.ProbeInterval, Heartbeat: config.Heartbeat,
		},
		Endpoints: kubelet.New(kubelet.Config{
			Home: process.Client, Judge: judge, Nodes: nodes, Pods: pods,
			NodeIP: config.NodeIP, Listen: config.KubeletAddress, PortsFrom: config.KubeletPortsFrom,
		}),
		Workers: work, Metrics: counts, Interval: config.ProbeInterval,
	})

	// The informers have a context of their own, so that every return from this function ends them.
	// With ctx, Shutdown would wait for ever after an error.
	watching, stopWatching := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	secrets.StartWithContext(watching)
	go objects.RunWithContext(watching)
	defer func() { stopWatching(); factory.Shutdown(); secrets.Shutdown() }()
	process.Probes.WaitFor("home cluster caches")
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("read %v of the home cluster: the watch ended early", kind)
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), kubeconfigs.HasSynced, objects.HasSynced) {
		return nil
	}
	process.Probes.Ready()
	return process.Lead(ctx, func(ctx context.Context) error {
		together, ctx := errgroup.WithContext(ctx)
		together.Go(func() error { return clusters.Run(ctx) })
		together.Go(func() error { return linker.Alone(ctx) })
		if shared != nil {
			together.Go(func() error { return shared.Run(ctx) })
		}
		return together.Wait()
	})
}

// exchange adds to what runs for each session that which shares Services, if that is asked for; the set then runs for home. It
// must be called before the factory is started.
func (c *Config) exchange(process *program.Process, homeID string, factory informers.SharedInformerFactory,
	objects cache.SharedIndexInformer, work []Worker) ([]Worker, *services.Set, error) {
	if !c.MultiClusterServices {
		return work, nil, nil
	}
	api, err := clients.NewMultiClusterServices(process.Access)
	if err != nil {
		return nil, nil, err
	}
	set := services.New(services.Config{HomeID: homeID, Home: process.Client, Services: api, Factory: factory, Objects: objects})
	return append(work, set.Remote), set, nil
}

// transform is the transform function of the informers on the home cluster.
func transform(obj any) (any, error) {
	switch object := obj.(type) {
	case *corev1.Node:
		obj = node.Transform(object)
	case *corev1.Pod:
		object.ManagedFields = nil
		return controller.PackPod(object), nil
	}
	return controller.DropManagedFields(obj)
}

// Worker does one kind of work for a session; see session.Worker.
type Worker = session.Worker

// Shared is what all workers of all sessions share.
type Shared struct {
	// Home is the home cluster.
	Home kubernetes.Interface
	// Informers watch the home cluster. Informers that workers ask for before it returns are
	// started, and in sync before the first session begins.
	Informers informers.SharedInformerFactory
	// Recorder records events in the home cluster.
	Recorder record.EventRecorder
	// Metrics is where workers register their metrics.
	Metrics *prometheus.Registry
	// Links joins the networks.
	Links *links.Linker
}

// workers returns what runs for every session. It is called once.
func workers(shared Shared) ([]Worker, error) {
	reflected, err := reflector.New(reflector.Config{Client: shared.Home, Factory: shared.Informers, Recorder: shared.Recorder,
		Metrics: shared.Metrics, Remotes: shared.Links.Objects})
	if err != nil {
		return nil, err
	}
	core := shared.Informers.Core().V1()
	offloaded, err := pods.New(pods.Config{
		Home: shared.Home, Recorder: shared.Recorder, Metrics: shared.Metrics,
		Pods: core.Pods().Informer(), Nodes: core.Nodes().Informer(), Namespaces: core.Namespaces().Informer(),
	})
	if err != nil {
		return nil, err
	}
	return []Worker{
		offloaded.Run,
		reflected.Run,
		shared.Links.Run,
	}, nil
}
