package doctor

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// logLines is how many lines of each log are written.
const logLines = 5000

// writeBundle writes what a report needs into a file. Nothing of Secrets is read. What cannot be read is named in errors.txt.
func writeBundle(ctx context.Context, home *cli.Cluster, file string, findings []Finding) (err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return cli.Misuse("--bundle cannot be written: %w", err)
	}
	packed := gzip.NewWriter(out)
	archive := tar.NewWriter(packed)
	defer func() { err = errors.Join(err, archive.Close(), packed.Close(), out.Close()) }()
	add := func(name string, content []byte) error {
		header := &tar.Header{Name: path.Join("lodestone", name), Mode: 0o600, Size: int64(len(content)), ModTime: time.Now()}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
		if _, err := archive.Write(content); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
		return nil
	}
	content, err := json.MarshalIndent(findings, "", "  ")
	if err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	if err := add("findings.json", content); err != nil {
		return err
	}
	var unread []string
	core, apps, storage := home.Client.CoreV1(), home.Client.AppsV1(), home.Client.StorageV1()
	options := metav1.ListOptions{}
	var pods *corev1.PodList
	for name, list := range map[string]func() (runtime.Object, error){
		"deployments": func() (runtime.Object, error) { return apps.Deployments(system).List(ctx, options) },
		"pods": func() (_ runtime.Object, err error) {
			pods, err = core.Pods(system).List(ctx, options)
			return pods, err
		},
		"events":         func() (runtime.Object, error) { return core.Events(system).List(ctx, options) },
		"nodes":          func() (runtime.Object, error) { return core.Nodes().List(ctx, options) },
		"storageclasses": func() (runtime.Object, error) { return storage.StorageClasses().List(ctx, options) },
		"remoteclusters": func() (runtime.Object, error) { return home.Remotes.List(ctx, options) },
		"volumemoves":    func() (runtime.Object, error) { return home.Moves.In("").List(ctx, options) },
		"volumereplicas": func() (runtime.Object, error) { return home.Moves.Replicas("").List(ctx, options) },
		"claims":         func() (runtime.Object, error) { return core.PersistentVolumeClaims("").List(ctx, options) },
		"volumes":        func() (runtime.Object, error) { return core.PersistentVolumes().List(ctx, options) },
	} {
		objects, err := list()
		if err != nil {
			unread = append(unread, home.Explain("list "+name, err).Error())
			continue
		}
		_ = meta.EachListItem(objects, func(object runtime.Object) error {
			if accessor, err := meta.Accessor(object); err == nil {
				accessor.SetManagedFields(nil)
			}
			return nil
		})
		content, err := yaml.Marshal(objects)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := add("objects/"+name+".yaml", content); err != nil {
			return err
		}
	}
	if pods != nil {
		for _, pod := range pods.Items {
			for _, container := range pod.Spec.Containers {
				log, err := core.Pods(system).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container.Name, TailLines: ptr.To(int64(logLines))}).
					DoRaw(ctx)
				if err != nil {
					unread = append(unread, home.Explain("get the log of "+pod.Name, err).Error())
					continue
				}
				if err := add("logs/"+pod.Name+"."+container.Name+".txt", log); err != nil {
					return err
				}
			}
		}
	}
	return add("errors.txt", []byte(strings.Join(unread, "\n")))
}
