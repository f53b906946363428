// Package rebind is the command rebind: in a remote cluster, its owner gives a namespace to the home
// namespace that has the name now. Judge decides whether that may be done and is pure.
package rebind

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var yes bool
	command := &cobra.Command{
		Use:   "rebind namespace/NAME",
		Short: "Give a namespace of a remote cluster to the home namespace that has its name now",
		Long: `Rebind is for the owner of a remote cluster, and runs there (--context). A namespace
that the remote agent made is for one home namespace, by its UID. If that was deleted
and another one has its name now, the other one gets nothing of what is left in it:
it may belong to somebody else. After a restore from a backup it does not: then rebind
gives the namespace, with all claims in it, to the home namespace of that name.

It shows both UIDs and the claims, and asks for the name. It is refused (exit code 3)
for a namespace that no other home namespace asks for.`,
		Example: `  # Home namespace shop was restored from a backup
  kubectl lodestone rebind namespace/shop --context west`,
		Args:              cli.TakesOne(cli.Namespace),
		ValidArgsFunction: cli.CompleteReferences(flags, true, []cli.Kind{cli.Namespace}, cli.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, cli.Namespace)
			if err != nil {
				return err
			}
			remote, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := cli.Within(cmd.Context(), time.Minute)
			defer cancel()
			return rebind(ctx, remote, streams, named.Name, yes)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return command
}

func rebind(ctx context.Context, remote *cli.Cluster, streams genericiooptions.IOStreams, name string, yes bool) error {
	namespace, err := remote.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return missing(ctx, remote, name)
	}
	if err != nil {
		return remote.Explain("get namespace "+name, err)
	}
	var request *remotev1alpha1.NamespaceRequest
	if home := namespace.Labels[keys.HomeID]; home != "" {
		request, err = remote.Remote.NamespaceRequests(keys.TenantPrefix+home).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			request = nil
		case err != nil:
			return remote.Explain("get NamespaceRequest "+name, err)
		}
	}
	if err := Judge(namespace, request); err != nil {
		return err
	}
	claims, err := remote.Client.CoreV1().PersistentVolumeClaims(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return remote.Explain("list claims of namespace "+name, err)
	}
	fmt.Fprintf(streams.ErrOut, "Namespace %s of the cluster of context %q is of home namespace %s with the UID %s.\nThe home "+
		"namespace of that name now has the UID %s. Whoever uses it gets what is in %s: %s\n"+
		"Go on only if the home namespace was restored, and belongs to those whose data this is.\n",
		name, remote.Context, request.Spec.HomeNamespace, namespace.Annotations[keys.HomeNamespaceUID],
		request.Spec.HomeNamespaceUID, name, listed(claims.Items))
	if err := cli.Ask(ctx, streams.In, streams.ErrOut, yes, name); err != nil {
		return err
	}
	// The write fails if the namespace has changed since it was shown.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": namespace.UID, "resourceVersion": namespace.ResourceVersion,
		"annotations": map[string]any{keys.HomeNamespaceUID: request.Spec.HomeNamespaceUID},
	}})
	if err != nil {
		return fmt.Errorf("write the change of namespace %s: %w", name, err)
	}
	if _, err := remote.Client.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-lodestone"}); err != nil {
		return remote.Explain("change namespace "+name, err)
	}
	_, err = fmt.Fprintf(streams.Out, "namespace/%s rebound\n", name)
	return err
}

// missing says that there is no such namespace, and which were made for home clusters.
func missing(ctx context.Context, remote *cli.Cluster, name string) error {
	problem := fmt.Sprintf("there is no namespace %q in the cluster of context %q", name, remote.Context)
	made, err := remote.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID})
	if err != nil || len(made.Items) == 0 {
		return fmt.Errorf("%s, nor any other of a home cluster: see that --context is that of the remote cluster (kubectl get "+
			"namespaces -L %s)", problem, keys.HomeID)
	}
	var names []string
	for _, namespace := range made.Items {
		names = append(names, namespace.Name)
	}
	return fmt.Errorf("%s; of home clusters there %s", problem, cli.ThereAre(names, name, "kubectl get namespaces -L "+keys.HomeID))
}

// most is how many claims are named.
const most = 20

// listed names claims for a user.
func listed(claims []corev1.PersistentVolumeClaim) string {
	if len(claims) == 0 {
		return "no claims."
	}
	var names []string
	for _, claim := range claims[:min(most, len(claims))] {
		names = append(names, claim.Name)
	}
	text := "claims " + strings.Join(names, ", ")
	if more := len(claims) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "."
}

// Judge says why a namespace cannot be bound again, nil if it can; request is the NamespaceRequest
// for it, nil if there is none. It is pure.
func Judge(namespace *corev1.Namespace, request *remotev1alpha1.NamespaceRequest) error {
	name, recorded := namespace.Name, namespace.Annotations[keys.HomeNamespaceUID]
	switch {
	case namespace.Labels[keys.HomeID] == "" || namespace.Annotations[keys.MadeFor] == "":
		return cli.Refuse("namespace %s was not made for a home cluster, so there is nothing to bind: give the name of one that "+
			"kubectl get namespaces -L %s shows with a home cluster", name, keys.HomeID)
	case request == nil || request.DeletionTimestamp != nil:
		return cli.Refuse("no home namespace asks for namespace %s: restore it at home first, with the label %s=%s", name, keys.Offload,
			keys.OffloadEnabled)
	case recorded == "" || request.Spec.HomeNamespaceUID == "" || recorded == string(request.Spec.HomeNamespaceUID):
		return cli.Refuse("namespace %s is of the home namespace that asks for it: there is nothing to bind", name)
	}
	return nil
}
