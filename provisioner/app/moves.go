package app

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/flow"
	"github.com/lodestone-storage/lodestone/provisioner/moves"
)

// movesOf returns the controller of moves beside a flow.
func movesOf(config *Config, home *rest.Config, client kubernetes.Interface, known *clusters.Registry, held *moves.Registry, work *flow.Flow, recorder record.EventRecorder, registerer prometheus.Registerer) (*moves.Controller, error) {
	objects, err := volumemoves.NewClient(home)
	if err != nil {
		return nil, err
	}
	networks, err := config.networks()
	if err != nil {
		return nil, err
	}
	scratch, err := config.scratch()
	if err != nil {
		return nil, err
	}
	counts, err := moves.NewMetrics(registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	sources := work.Sources
	moving := moves.New(moves.Config{
		Client: client, Home: home, Dynamic: work.Snapshots.Client(), Moves: objects, Objects: volumemoves.NewInformer(objects),
		Clusters: known, Registry: held, Place: work.Place, Namespace: config.Namespace, Image: config.MoverImage, Scratch: scratch, Networks: networks, Recorder: recorder, Metrics: counts, Margin: config.ForcedDeletionMargin, Settling: config.MoveSettling,
		Class:    func(name string) *storagev1.StorageClass { return seen[storagev1.StorageClass](sources.Classes, name) },
		Node:     func(name string) *corev1.Node { return seen[corev1.Node](sources.Nodes, name) },
		Space:    func(name string) *corev1.Namespace { return seen[corev1.Namespace](sources.Namespaces, name) },
		StandIns: func(cluster string) []*corev1.Node { return standIns(sources.Nodes, cluster) },
		View:     work.View,
		Released: work.Enqueue,
	})
	return moving, moving.Witness(sources.Pods)
}

// standIns returns the nodes of home that stand for a remote cluster.
func standIns(nodes cache.SharedIndexInformer, cluster string) []*corev1.Node {
	var found []*corev1.Node
	for _, obj := range nodes.GetStore().List() {
		if node, ok := obj.(*corev1.Node); ok && node.Labels[keys.Cluster] == cluster {
			found = append(found, node)
		}
	}
	return found
}

// seen returns an object of an informer by its key, nil if there is none.
func seen[T any](informer cache.SharedIndexInformer, key string) *T {
	obj, ok, err := informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	typed, _ := obj.(*T)
	return typed
}
