// Package doctor is the command doctor: it checks an installation from end to end, and writes a bundle for reports. findings.go,
// installation.go and names.go decide what is worth a line and are pure, command.go reads the cluster and prints, bundle.go writes the
// bundle.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
	versions "github.com/lodestone-storage/lodestone/kubectl-lodestone/version"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

const (
	// readTimeout limits all reads together.
	readTimeout = 2 * time.Minute
	// askTimeout limits the question to one replica of the extender.
	askTimeout = 5 * time.Second
)

// system is where the programs run.
const system = "lodestone-system"

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var bundle, remoteContext, remoteKubeconfig string
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation from end to end",
		Long: `Doctor checks the Lodestone of a home cluster as support would: programs and their
versions, rights and policies, optional components, certificates, whether
kube-scheduler asks the extender, classes, room, remote clusters and their virtual
nodes, replicas, networks and clocks. Each finding is one sentence, with what to do. It
changes nothing. The exit code is 1 if there is a problem.

With --bundle it also writes what a report needs into a file: findings, objects of
Lodestone and logs of its programs. Secrets are not in it; names of namespaces, claims
and nodes are. With --remote-context the programs of a remote cluster are looked at, too.`,
		Example: `  kubectl lodestone doctor
  # The remote agent of cluster west, too
  kubectl lodestone doctor --remote-context west
  # For a report
  kubectl lodestone doctor --bundle lodestone.tar.gz`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if folder := filepath.Dir(bundle); bundle != "" {
				if info, err := os.Stat(folder); err != nil || !info.IsDir() {
					return cli.Misuse("--bundle cannot be written: there is no folder %q", folder)
				}
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			var remote *cli.Cluster
			if remoteContext != "" || remoteKubeconfig != "" {
				if remote, err = cli.ConnectRemote(flags, remoteKubeconfig, remoteContext); err != nil {
					return err
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			facts, err := read(ctx, home)
			if err != nil {
				return err
			}
			if remote != nil {
				if err := readRemote(ctx, remote, &facts); err != nil {
					return err
				}
			}
			findings := Findings(facts)
			if err := write(streams.Out, output, findings); err != nil {
				return err
			}
			if bundle != "" {
				if err := writeBundle(ctx, home, bundle, findings); err != nil {
					return err
				}
				fmt.Fprintf(streams.ErrOut, "wrote %s: look at it before you pass it on\n", bundle)
			}
			problems := 0
			for _, finding := range findings {
				if finding.Level == Problem {
					problems++
				}
			}
			if problems > 0 {
				return fmt.Errorf("%d problems were found: each line says what to do", problems)
			}
			return nil
		},
	}
	output.Add(command, "for programs; default: text", cli.JSON, cli.YAML)
	command.Flags().StringVar(&bundle, "bundle", "", "file to write for a report, such as lodestone.tar.gz")
	command.Flags().StringVar(&remoteContext, "remote-context", "", "kubeconfig context of a remote cluster that is looked at, too")
	command.Flags().StringVar(&remoteKubeconfig, "remote-kubeconfig", "",
		"kubeconfig file of the remote cluster; default: the one that kubectl uses")
	return command
}

func write(out io.Writer, output cli.Output, findings []Finding) error {
	if output.IsObject() {
		return output.Write(out, map[string]any{"items": findings})
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, finding := range findings {
		text := finding.Says
		if finding.Do != "" {
			text += "; " + finding.Do
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", finding.Level, finding.Check, text)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	return nil
}

// read reads what the checks decide from. What the user may not read, or what is broken, is noted; a cluster that does not answer is an
// error.
func read(ctx context.Context, home *cli.Cluster) (Facts, error) {
	f := Facts{Now: time.Now(), Plugin: version.Get().GitVersion, Unread: map[string]string{}}
	core, storage := home.Client.CoreV1(), home.Client.StorageV1()
	for _, part := range []struct {
		checks []string
		doing  string
		read   func() error
	}{
		{[]string{"programs"}, "list deployments -n " + system, func() (err error) {
			f.Programs, err = versions.Read(ctx, home, system)
			return err
		}},
		{[]string{"manifests"}, "compare objects", func() (err error) {
			f.Managed, f.Missing, f.Differing, err = install.Compare(ctx, home)
			return err
		}},
		{[]string{"rights", "components"}, "compare roles and bindings", func() (err error) {
			f.Home, err = readInstallation(ctx, home, false)
			return err
		}},
		{[]string{"admission"}, "list mutatingadmissionpolicies and mutatingwebhookconfigurations", func() error {
			ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=lodestone"}
			registration := home.Client.AdmissionregistrationV1()
			policies, err := registration.MutatingAdmissionPolicies().List(ctx, ours)
			switch {
			case err == nil:
				for i := range policies.Items {
					f.Policies = append(f.Policies, policies.Items[i].Name)
				}
			case !apierrors.IsNotFound(err): // not served before Kubernetes 1.36
				return err
			}
			webhooks, err := registration.MutatingWebhookConfigurations().List(ctx, ours)
			if err != nil {
				return err
			}
			f.Webhooks = webhooks.Items
			bound := map[string]bool{}
			if len(f.Policies) > 0 {
				bindings, err := registration.MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for i := range bindings.Items {
					bound[bindings.Items[i].Spec.PolicyName] = true
				}
			}
			confining, err := registration.ValidatingAdmissionPolicies().List(ctx, ours)
			if err != nil {
				return err
			}
			for i := range confining.Items {
				f.Confining = append(f.Confining, confining.Items[i].Name)
			}
			bindings, err := registration.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range bindings.Items {
				bound[bindings.Items[i].Spec.PolicyName] = true
			}
			f.Unbound = slices.DeleteFunc(slices.Concat(f.Policies, f.Confining), func(name string) bool { return bound[name] })
			return nil
		}},
		{[]string{"certificates"}, "get secrets -n " + system, func() error {
			f.Certificates = map[string][]byte{}
			for _, name := range []string{"lodestone-extender-server", "lodestone-extender-client"} {
				secret, err := core.Secrets(system).Get(ctx, name, metav1.GetOptions{})
				switch {
				case err == nil:
					f.Certificates[name] = secret.Data["tls.crt"]
				case !apierrors.IsNotFound(err):
					return err
				}
			}
			return nil
		}},
		{[]string{"extender"}, "read the metrics of the extender", func() (err error) { f.Asked, err = asked(ctx, home); return err }},
		{[]string{"extender"}, "list pods -n kube-system", func() error {
			list, err := core.Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-scheduler"})
			if err == nil {
				f.Schedulers = list.Items
			}
			return err
		}},
		{[]string{"classes", "capacity", "names"}, "list storageclasses", func() error {
			list, err := storage.StorageClasses().List(ctx, metav1.ListOptions{})
			if err == nil {
				for i := range list.Items {
					f.Classes = append(f.Classes, &list.Items[i])
				}
			}
			return err
		}},
		{[]string{"capacity"}, "read the room of classes", func() (err error) {
			if f.Driver, err = storage.CSIDrivers().Get(ctx, keys.Driver, metav1.GetOptions{}); err != nil {
				f.Driver = nil
				return notFoundIsNone(err)
			}
			rooms, err := storage.CSIStorageCapacities(system).List(ctx, metav1.ListOptions{})
			if err == nil {
				f.Rooms = rooms.Items
			}
			return err
		}},
		{[]string{"clusters", "networks", "names"}, "list remoteclusters", func() error {
			list, err := home.Remotes.List(ctx, metav1.ListOptions{})
			if err == nil {
				f.Remotes = list.Items
			}
			return notFoundIsNone(err)
		}},
		{[]string{"replicas"}, "list volumereplicas", func() error {
			list, err := home.Moves.Replicas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
			if err == nil {
				f.Replicas = list.Items
			}
			return notFoundIsNone(err)
		}},
		{[]string{"names"}, "list namespaces", func() error {
			list, err := core.Namespaces().List(ctx, metav1.ListOptions{})
			if err == nil {
				f.Namespaces = list.Items
			}
			return err
		}},
		{[]string{"clocks"}, "read the leases of nodes", func() error {
			nodes, err := core.Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			leases, err := home.Client.CoordinationV1().Leases("kube-node-lease").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			f.Nodes, f.Leases = nodes.Items, leases.Items
			f.Server, err = serverTime(ctx, home.Config)
			f.Now = time.Now()
			return err
		}},
	} {
		switch err := part.read(); {
		case apierrors.IsForbidden(err):
			for _, check := range part.checks {
				f.Unread[check] = "you may not " + part.doing
			}
		case err != nil && noAnswer(err):
			return f, home.Explain(part.doing, err)
		case err != nil:
			for _, check := range part.checks {
				f.Unread[check] = part.doing + ": " + sentence.Short(err.Error(), longestError)
			}
		}
	}
	return f, nil
}

// longestError is as much as is shown of an error for which one check cannot be made.
const longestError = 300

// noAnswer says that a cluster did not answer at all, so that the other checks need not be tried.
func noAnswer(err error) bool {
	var request *url.Error
	return errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func readRemote(ctx context.Context, remote *cli.Cluster, f *Facts) (err error) {
	f.Remote, err = versions.Read(ctx, remote, versions.AgentNamespace)
	if apierrors.IsForbidden(err) {
		f.Unread["agents"] = "you may not list deployments -n " + versions.AgentNamespace + " in the remote cluster"
		return nil
	}
	if err != nil {
		return remote.Explain("list deployments and daemonsets of Lodestone", err)
	}
	if f.There, err = readInstallation(ctx, remote, true); err != nil && noAnswer(err) {
		return remote.Explain("compare roles and bindings", err)
	} else if err != nil {
		f.There = Installation{Unread: sentence.Short(err.Error(), longestError)}
	}
	return nil
}

// readInstallation reads what is installed in a cluster, and what its optional components need.
func readInstallation(ctx context.Context, cluster *cli.Cluster, remote bool) (i Installation, err error) {
	if i.State, err = install.Installed(ctx, cluster, remote); err != nil || !i.Found {
		return i, err
	}
	if i.Compared, i.Rights, err = install.CompareRights(ctx, cluster, i.Values, remote); err != nil {
		return i, err
	}
	if i.ServiceExports, err = install.ServesServices(cluster); err != nil {
		return i, err
	}
	if i.ClusterProfiles, err = install.ServesProfiles(cluster); err != nil {
		return i, err
	}
	if i.Corefile, err = install.Corefile(ctx, cluster); err != nil {
		return i, err
	}
	nodes, err := cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return i, err
	}
	i.Gateway = slices.ContainsFunc(nodes.Items, install.IsGateway)
	return i, nil
}

func notFoundIsNone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// filtered is the metric of what kube-scheduler asks first.
var filtered = regexp.MustCompile(`(?m)^lodestone_extender_requests_total\{[^}]*verb="filter"[^}]*\} ([0-9.e+]+)$`)

// asked asks each replica of the extender, through the API server, whether it was asked. One that does not answer is left out.
func asked(ctx context.Context, home *cli.Cluster) (map[string]bool, error) {
	pods, err := home.Client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=lodestone,app.kubernetes.io/component in (extender, scheduler)",
	})
	if err != nil {
		return nil, err
	}
	replicas := map[string]bool{}
	for _, pod := range pods.Items {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		body, err := home.Client.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name + ":8082").
			SubResource("proxy").Suffix("metrics").DoRaw(asking)
		cancel()
		switch {
		case apierrors.IsForbidden(err) && !apierrors.IsUnexpectedServerError(err):
			return nil, err // that is the API server's own refusal
		case err != nil:
			continue
		}
		was := false
		for _, match := range filtered.FindAllSubmatch(body, -1) {
			was = was || string(match[1]) != "0"
		}
		replicas[pod.Name] = was
	}
	return replicas, nil
}

// serverTime returns the time of the API server, in whole seconds.
func serverTime(ctx context.Context, config *rest.Config) (time.Time, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return time.Time{}, fmt.Errorf("make a client: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/version", nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("make a request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	defer response.Body.Close()
	at, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the API server does not say what time it is: %w", err)
	}
	return at, nil
}
