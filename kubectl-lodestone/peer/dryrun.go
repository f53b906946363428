package peer

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// redacted replaces secret values.
const redacted = "REDACTED"

// print prints the objects that a run would make, and changes nothing. No
// credentials are issued for it.
func (p *peering) print(plan Plan, server cli.Server, have credentials.Found) error {
	login := credentials.Login{Token: redacted}
	if plan.Auth == Certificate {
		login = credentials.Login{Certificate: []byte(redacted), PEM: []byte(redacted)}
	}
	if p.ShowSecrets && have.Kind() == plan.Auth && (have.Token != "" || len(have.Certificate) > 0) {
		login = have.Login
	}
	kubeconfig, err := credentials.Kubeconfig(plan.Name, "lodestone-home", server, login)
	if err != nil {
		return err
	}
	// The text form can be read and filled in, base64 could not.
	wanted := plan.secret(nil, p.remoteUID, func(map[string][]byte) {})
	wanted.Data, wanted.StringData = nil, map[string]string{plan.key(): string(kubeconfig)}
	hint := fmt.Sprintf("kubectl --context %s create token %s -n %s", p.remote.Context, keys.HomeAccount, plan.Tenant())
	if plan.Auth == Certificate {
		hint = "a client certificate of user " + plan.User() + ", group " + keys.HomesGroup
	}
	items := []item{
		{cluster: "remote", object: plan.homeCluster(p.Options, p.homeUID), comment: "what the owner of that cluster allows home"},
		{cluster: "home", object: wanted, comment: "how home logs in there; to fill in: " + hint},
		{cluster: "home", object: plan.remoteCluster(p.Options, p.remoteUID), comment: "what home calls that cluster"},
	}
	return p.write(items)
}

type item struct {
	cluster, comment string
	object           runtime.Object
}

func (p *peering) write(items []item) error {
	var list []map[string]any
	for _, item := range items {
		if p.For != "both" && p.For != item.cluster {
			continue
		}
		object, err := manifest(item.object)
		if err != nil {
			return err
		}
		list = append(list, object)
		if p.Output == "json" {
			continue
		}
		content, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("write the objects: %w", err)
		}
		side := p.home.Context
		if item.cluster == "remote" {
			side = p.remote.Context
		}
		if _, err := fmt.Fprintf(p.out.Out, "---\n# For the %s cluster (context %s): %s\n%s", item.cluster, side, item.comment,
			content); err != nil {
			return err
		}
	}
	if p.Output != "json" {
		return nil
	}
	content, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": list}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the objects: %w", err)
	}
	_, err = fmt.Fprintln(p.out.Out, string(content))
	return err
}

// manifest returns an object as a user would write it.
func manifest(object runtime.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("write the objects: %w", err)
	}
	full := unstructured.Unstructured{Object: content}
	meta := map[string]any{"name": full.GetName()}
	if full.GetNamespace() != "" {
		meta["namespace"] = full.GetNamespace()
	}
	if labels := full.GetLabels(); len(labels) > 0 {
		meta["labels"] = labels
	}
	if annotations := full.GetAnnotations(); len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	content["metadata"] = meta
	delete(content, "status")
	prune(content)
	return content, nil
}

// prune removes empty objects, which no user would write.
func prune(object map[string]any) {
	for name, value := range object {
		inner, ok := value.(map[string]any)
		if !ok {
			continue
		}
		prune(inner)
		if len(inner) == 0 {
			delete(object, name)
		}
	}
}
