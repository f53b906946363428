package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/deploy"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// Names of what connects kube-scheduler with the extender.
const (
	extenderName = "lodestone-extender"
	clientSecret = "lodestone-extender-client"
	// exampleAddress is that of the extender in the example of deploy/.
	exampleAddress = "https://10.96.0.53:8888"
)

// configuration returns the configuration of kube-scheduler that has it ask the extender of this cluster: about every pod, or about
// marked ones alone. A kube-scheduler that is a static pod resolves no names of Services, so it has the address.
func (t *target) configuration(ctx context.Context, marked bool) ([]byte, error) {
	service, err := t.Client.CoreV1().Services(homeNamespace).Get(ctx, extenderName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the cluster of context %q has no extender that kube-scheduler can ask: install Lodestone there first, with "+
			"--scheduler=extender", t.Context)
	case err != nil:
		return nil, t.Explain("get service "+extenderName+" -n "+homeNamespace, err)
	}
	file := "examples/kube-scheduler-configuration-mtls.yaml"
	if marked {
		file = "examples/kube-scheduler-configuration-marked.yaml"
	}
	example, err := deploy.Files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration in the plugin: %w", err)
	}
	// What stands above it says how the example is used.
	_, content, _ := bytes.Cut(example, []byte("\napiVersion:"))
	address := "https://" + net.JoinHostPort(service.Spec.ClusterIP, "8888")
	return bytes.ReplaceAll(append([]byte("apiVersion:"), content...), []byte(exampleAddress), []byte(address)), nil
}

// Where kubeadm has what kube-scheduler runs with, below the root of the node.
const (
	manifestPath  = "etc/kubernetes/manifests/kube-scheduler.yaml"
	lodestonePath = "etc/kubernetes/lodestone"
	configFile    = "scheduler.yaml"
	// beforeFile is kube-scheduler's manifest without all this. In the folder of manifests kubelet would run it, too.
	beforeFile = "kube-scheduler.yaml.before"
	// stamp is an annotation of kube-scheduler's pod, of what it reads when it starts. kubelet starts it anew when that changes.
	stamp = "lodestone.dev/configuration"
)

// schedulerTimeout is how long kube-scheduler may take until it runs with a new manifest.
const schedulerTimeout = 60 * time.Second

// configureOnNode has the kube-scheduler of the node whose files are below root ask the extender, and about marked pods alone once
// new pods are marked.
func (i *installing) configureOnNode(ctx context.Context, root string) error {
	marked, err := i.marks(ctx)
	if err != nil {
		return err
	}
	mark, err := i.configureScheduler(ctx, root, marked)
	if err != nil {
		return err
	}
	kept, err := i.keepConfiguration(ctx)
	if err != nil {
		return err
	}
	if !marked && kept {
		if marked, err = i.beginToMark(ctx, mark); err != nil {
			return err
		}
		if marked {
			if _, err := i.configureScheduler(ctx, root, marked); err != nil {
				return err
			}
		}
	}
	about := "about every pod; run the same command on the next control-plane node"
	if marked {
		about = "about pods with claims and those of namespaces that are open to remote clusters, and about no others; run the same command on " +
			"all other control-plane nodes, also on those that ask about every pod so far"
	}
	i.Say("kube-scheduler of this node asks the extender %s", about)
	return nil
}

// configureScheduler has the kube-scheduler of a node run with the configuration that it is to have, and returns the mark of that,
// which is the same on all nodes. If kube-scheduler does not run with it, its manifest is put back.
func (t *target) configureScheduler(ctx context.Context, root string, marked bool) (mark string, err error) {
	manifest, folder := filepath.Join(root, manifestPath), filepath.Join(root, lodestonePath)
	before, err := os.ReadFile(manifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no %s here: run this on a control-plane node of kubeadm; if another tool made the cluster, give its "+
			"kube-scheduler the flag --config with the configuration that kubectl lodestone install prints (docs/scheduling.md has the steps)",
			manifest)
	case err != nil:
		return "", fmt.Errorf("kube-scheduler's manifest cannot be read: %w; run this as root", err)
	}
	configuration, err := t.configuration(ctx, marked)
	if err != nil {
		return "", err
	}
	files, err := t.clientFiles(ctx)
	if err != nil {
		return "", err
	}
	files[configFile] = configuration
	// The certificate and the key are read again for each connection.
	sum := sha256.Sum256(slices.Concat(files[configFile], files["ca.crt"]))
	mark = hex.EncodeToString(sum[:8])
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("ask for the name of this node: %w", err)
	}
	wanted := name + "." + mark
	after, asked, err := asking(before, wanted)
	if err != nil {
		return "", err
	}
	last, err := os.ReadFile(filepath.Join(folder, configFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("kube-scheduler's configuration cannot be read: %w; run this as root", err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of kube-scheduler's certificate: %w; run this as root", err)
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := replace(filepath.Join(folder, file), files[file], folder); err != nil {
			return "", err
		}
	}
	if bytes.Equal(before, after) {
		t.Say("kube-scheduler of this node has this configuration already; its certificate was copied again")
		return mark, nil
	}
	if !asked { // else that file has what to go back to already
		if err := replace(filepath.Join(folder, beforeFile), before, folder); err != nil {
			return "", err
		}
	}
	t.Say("changing %s; what it is without the extender is in %s", manifest, filepath.Join(folder, beforeFile))
	if err := replace(manifest, after, folder); err != nil {
		return "", err
	}
	if err := t.awaitScheduler(ctx, wanted); err != nil {
		unrestored := replace(manifest, before, folder)
		if last != nil {
			unrestored = errors.Join(unrestored, replace(filepath.Join(folder, configFile), last, folder))
		}
		if unrestored != nil {
			return "", fmt.Errorf("kube-scheduler does not run with the extender's configuration (%w), and its manifest cannot be put back: %w; "+
				"to be without the extender, copy %s to %s", err, unrestored, filepath.Join(folder, beforeFile), manifest)
		}
		return "", fmt.Errorf("kube-scheduler did not run with the extender's configuration, so its manifest is what it was: %w", err)
	}
	return mark, nil
}

// clientFiles returns kube-scheduler's certificate, once there is one.
func (t *target) clientFiles(ctx context.Context) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := t.Await(ctx, "the certificate of kube-scheduler", func(ctx context.Context) (string, bool, error) {
		secret, err := t.Client.CoreV1().Secrets(homeNamespace).Get(ctx, clientSecret, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "Secret " + clientSecret + " is not there", false, nil
		case err != nil:
			return "", false, t.Explain("get secret "+clientSecret+" -n "+homeNamespace, err)
		}
		for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
			if len(secret.Data[file]) == 0 {
				return "Secret " + clientSecret + " is empty", false, nil
			}
			files[file] = secret.Data[file]
		}
		return "", true, nil
	})
	return files, err
}

// asking returns kube-scheduler's manifest with the configuration that has it ask the extender, the same bytes if it has this one,
// and whether it had one before. It is pure.
func asking(manifest []byte, mark string) (after []byte, asked bool, err error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return nil, false, fmt.Errorf("kube-scheduler's manifest is not understood: %w", err)
	}
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "kube-scheduler" })
	if at < 0 {
		return nil, false, fmt.Errorf("kube-scheduler's manifest has no container kube-scheduler: add the flag --config=/%s to the container "+
			"that runs it, and mount /%s there (docs/scheduling.md#your-own-control-plane has both)", lodestonePath+"/"+configFile, lodestonePath)
	}
	container, path := &pod.Spec.Containers[at], "/"+lodestonePath
	config := "--config=" + filepath.Join(path, configFile)
	for _, argument := range slices.Concat(container.Command, container.Args) {
		if strings.HasPrefix(argument, "--config") && argument != config {
			return nil, false, cli.Refuse("kube-scheduler of this node has a configuration of its own (%s), and nothing was changed: add to that "+
				"file what kubectl lodestone install prints under extenders (docs/scheduling.md#your-own-control-plane has the whole of it)", argument)
		}
	}
	asked = slices.Contains(container.Command, config)
	if asked && pod.Annotations[stamp] == mark {
		return manifest, asked, nil
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, stamp, mark)
	if !asked {
		container.Command = append(container.Command, config)
	}
	if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path }) {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "lodestone", MountPath: path, ReadOnly: true})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "lodestone", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(corev1.HostPathDirectory)},
		}})
	}
	if after, err = yaml.Marshal(pod); err != nil {
		return nil, false, fmt.Errorf("write kube-scheduler's manifest: %w", err)
	}
	return after, asked, nil
}

// awaitScheduler waits until the kube-scheduler with a mark is Ready.
func (t *target) awaitScheduler(ctx context.Context, mark string) error {
	ctx, cancel := context.WithTimeout(ctx, schedulerTimeout)
	defer cancel()
	return t.Await(ctx, "kube-scheduler", func(ctx context.Context) (string, bool, error) {
		pods, err := t.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-scheduler"})
		if err != nil {
			return "", false, t.Explain("list pods -n kube-system", err)
		}
		for _, pod := range pods.Items {
			if pod.Annotations[stamp] != mark {
				continue
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					return "", true, nil
				}
			}
			state := "pod " + pod.Name + " is not Ready"
			if why := stuck([]corev1.Pod{pod}); why != "" {
				state = why
			}
			return state, false, nil
		}
		return "kubelet has not started it anew", false, nil
	})
}

// replace writes a file at once, by way of another file in a folder that nobody reads manifests from.
func replace(path string, content []byte, by string) error {
	file, err := os.CreateTemp(by, ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w; run this as root", path, err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(0o600), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
