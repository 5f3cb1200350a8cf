package redfishsim

import (
	"net/http"
	"slices"
)

const accountsPath = rootPath + "/AccountService"

// privileges are those that DSP0266 gives to its roles.
var privileges = map[string][]string{
	RoleAdministrator: {"Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"},
	RoleOperator:      {"Login", "ConfigureSelf", "ConfigureComponents"},
	RoleReadOnly:      {"Login", "ConfigureSelf"},
}

// customRole is the name of a role of the BMC's own.
const customRole = "Fencer"

func (m Mode) role() string {
	switch {
	case m.Role != "":
		return m.Role
	case m.Privileges != nil || m.OemPrivileges != nil:
		return customRole
	default:
		return RoleOperator
	}
}

// mayReset tells whether the account may switch the power: by the standard's privilege or by one
// of the maker's.
func (m Mode) mayReset() bool {
	assigned := m.Privileges
	if assigned == nil {
		assigned = privileges[m.role()]
	}
	return slices.Contains(assigned, "ConfigureComponents") || slices.Contains(m.OemPrivileges, "VirtualPowerAndReset")
}

// serveAccounts shows the account, its role, and an administrator beside it.
func (b *BMC) serveAccounts(w http.ResponseWriter, r *http.Request) {
	m := b.behaviour()
	if m.HideAccounts {
		refuse(w, http.StatusForbidden, "Base.1.8.InsufficientPrivilege")
		return
	}
	const accounts, roles = accountsPath + "/Accounts", accountsPath + "/Roles"
	link := func(uri string) map[string]string { return map[string]string{"@odata.id": uri} }
	account := func(id, user, role string) map[string]any {
		return map[string]any{
			"@odata.id": accounts + "/" + id, "@odata.type": "#ManagerAccount.v1_3_0.ManagerAccount", "Id": id, "Name": "User Account",
			"UserName": user, "RoleId": role, "Links": map[string]any{"Role": link(roles + "/" + role)},
		}
	}
	assigned := m.Privileges
	if assigned == nil {
		assigned = privileges[m.role()]
	}
	documents := map[string]map[string]any{
		accountsPath: {
			"@odata.id": accountsPath, "@odata.type": "#AccountService.v1_5_0.AccountService", "Id": "AccountService",
			"Name": "Account Service", "Accounts": link(accounts), "Roles": link(roles),
		},
		accounts: {
			"@odata.id": accounts, "@odata.type": "#ManagerAccountCollection.ManagerAccountCollection", "Name": "Accounts",
			"Members": []any{link(accounts + "/1"), link(accounts + "/2")},
		},
		accounts + "/1": account("1", "root", RoleAdministrator),
		accounts + "/2": account("2", b.config.Username, m.role()),
		roles + "/" + m.role(): {
			"@odata.id": roles + "/" + m.role(), "@odata.type": "#Role.v1_2_0.Role", "Id": m.role(), "Name": "Role",
			"AssignedPrivileges": assigned, "OemPrivileges": m.OemPrivileges,
		},
	}
	doc, ok := documents[path(r)]
	if !ok {
		refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		return
	}
	answer(w, http.StatusOK, doc)
}
