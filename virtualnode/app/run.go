package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/leader"
	"github.com/lodestone-storage/lodestone/pkg/probes"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
	"github.com/lodestone-storage/lodestone/virtualnode/kubelet"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
	"github.com/lodestone-storage/lodestone/virtualnode/registry"
)

// Run runs the program until ctx ends, and then returns nil once every step that
// was begun is done and leadership is given up. An error means that it could not
// start or lost its leadership.
func Run(ctx context.Context, config *Config) error {
	home := prepared(config.Home)
	client, err := kubernetes.NewForConfig(home)
	if err != nil {
		return fmt.Errorf("make client of the home cluster: %w", err)
	}
	// Work may use up its rate, and strangers that of judging them; neither may
	// cost the leadership.
	judge, err := kubernetes.NewForConfig(limited(home, 50, 100))
	if err != nil {
		return fmt.Errorf("make client that judges requests: %w", err)
	}
	election, err := kubernetes.NewForConfig(limited(home, 5, 10))
	if err != nil {
		return fmt.Errorf("make client of the leader election: %w", err)
	}
	remotes, err := remoteclusters.NewClient(home)
	if err != nil {
		return err
	}
	metrics, state := prometheus.NewRegistry(), probes.New()
	stopHTTP, err := state.Serve(ctx, config.HTTPAddress, metrics)
	if err != nil {
		return err
	}
	defer stopHTTP()
	system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get namespace kube-system of the home cluster: %w", err)
	}
	homeID := config.ClusterID
	if homeID == "" {
		homeID = string(system.UID)[:8]
	}

	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim))
	secrets := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(config.Namespace), informers.WithTransform(slim))
	nodes, pods := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods()
	pods.Informer()
	kubeconfigs := secrets.Core().V1().Secrets().Informer()
	objects := remoteclusters.NewInformer(remotes)
	if config.Workers == nil {
		config.Workers = workers
	}
	work, err := config.Workers(Shared{
		Home: client, HomeID: homeID, Informers: factory, Metrics: metrics,
		Recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "lodestone-virtualnode"}),
	})
	if err != nil {
		return err
	}
	counts, err := registry.NewMetrics(metrics)
	if err != nil {
		return err
	}
	endpoints := kubelet.New(kubelet.Config{
		Home: client, Judge: judge, Nodes: nodes, Pods: pods.Lister(),
		NodeIP: config.NodeIP, Listen: config.KubeletAddress, PortsFrom: config.KubeletPortsFrom,
	})
	known := registry.New(registry.Config{
		Home: client, Remotes: remotes, Objects: objects, Secrets: kubeconfigs,
		Namespace: config.Namespace, HomeID: homeID, HomeUID: string(system.UID),
		Node:      node.Config{Home: client, Nodes: nodes, Address: config.NodeIP, Probe: config.ProbeInterval, Heartbeat: config.Heartbeat},
		Endpoints: endpoints, Workers: work, Metrics: counts, Interval: config.ProbeInterval,
	})

	// Not ctx: whatever ends this function ends the watches, or it would wait for
	// them for ever.
	watching, stopWatching := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	secrets.StartWithContext(watching)
	go objects.RunWithContext(watching)
	defer func() { stopWatching(); factory.Shutdown(); secrets.Shutdown() }()
	state.WaitFor("home cluster caches")
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
	state.Ready()
	return leader.Run(ctx, election, leader.Election{
		Enabled: config.LeaderElect, Namespace: config.Namespace, Name: "lodestone-virtualnode", Duration: config.LeaseDuration,
	}, known.Run)
}

// slim drops what this program never reads from an object before it is cached.
func slim(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}
