"""What a connection is, and which kinds there are.

Owns: the type, the categories of services, the ways to authenticate with the keys of each.
Leaves: reading a document to documents.py.
Always: categories and keys are spelt as Azure ML's REST interface spells them.

Source: https://learn.microsoft.com/rest/api/azureml/workspace-connections
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

CATEGORIES = (
    "ADLSGen2", "AIServices", "AmazonMws", "AmazonRdsForOracle", "AmazonRdsForSqlServer",
    "AmazonRedshift", "AmazonS3Compatible", "ApiKey", "AzureBlob", "AzureContainerAppEnvironment",
    "AzureDataExplorer", "AzureDatabricksDeltaLake", "AzureKeyVault", "AzureMariaDb",
    "AzureMySqlDb", "AzureOneLake", "AzureOpenAI", "AzurePostgresDb", "AzureSqlDb", "AzureSqlMi",
    "AzureStorageAccount", "AzureSynapseAnalytics", "AzureTableStorage", "BingLLMSearch",
    "Cassandra", "CognitiveSearch", "CognitiveService", "Concur", "ContainerRegistry", "CosmosDb",
    "CosmosDbMongoDbApi", "Couchbase", "CustomKeys", "Databricks", "Db2", "Drill", "Dynamics",
    "DynamicsAx", "DynamicsCrm", "Eloqua", "FeatureStore", "FileServer", "FtpServer",
    "GenericHttp", "GenericRest", "Git", "GoogleAdWords", "GoogleBigQuery", "GoogleCloudStorage",
    "Greenplum", "Hbase", "Hdfs", "Hive", "Hubspot", "Impala", "Informix", "Jira", "Magento",
    "ManagedOnlineEndpoint", "MariaDb", "Marketo", "MicrosoftAccess", "MongoDbAtlas", "MongoDbV2",
    "MySql", "Netezza", "ODataRest", "Odbc", "Office365", "OpenAI", "Oracle",
    "OracleCloudStorage", "OracleServiceCloud", "PayPal", "Phoenix", "Pinecone", "PostgreSql",
    "Presto", "PythonFeed", "QuickBooks", "Redis", "Responsys", "S3", "Salesforce",
    "SalesforceMarketingCloud", "SalesforceServiceCloud", "SapBw", "SapCloudForCustomer",
    "SapEcc", "SapHana", "SapOpenHub", "SapTable", "Serp", "Serverless", "ServiceNow", "Sftp",
    "SharePointOnlineList", "Shopify", "Snowflake", "Spark", "SqlServer", "Square", "Sybase",
    "Teradata", "Vertica", "WebTable", "Xero", "Zoho",
)  # fmt: skip
OF_DATA = ("ADLSGen2", "AzureBlob", "AzureOneLake")
"""Those of stores of data: a list has them only when it is asked for them."""
WITHOUT_TARGET = ("OpenAI", "Serp")
"""Each is one public service, which need not be named."""

CREDENTIALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "None": ((), ()),
    "AAD": ((), ()),
    "PAT": (("pat",), ()),
    "SAS": (("sas",), ()),
    "ApiKey": (("key",), ()),
    # azure-ai-ml writes an account's key as `sas`.
    "AccountKey": ((), ("key", "sas")),
    "AccessKey": (("accessKeyId", "secretAccessKey"), ()),
    "UsernamePassword": (("username", "password"), ("securityToken",)),
    "ServicePrincipal": (("clientId", "clientSecret", "tenantId"), ()),
    "ManagedIdentity": ((), ("clientId", "resourceId")),
    "CustomKeys": (("keys",), ()),
    "OAuth2": (
        (),
        (
            "authUrl", "clientId", "clientSecret", "developerToken", "password", "refreshToken",
            "tenantId", "username",
        ),
    ),
}  # fmt: skip
"""By the way to authenticate: the keys that must be there, then those that may be."""


@dataclass(frozen=True)
class WorkspaceConnection:
    """A service that a workspace knows, and what it takes to authenticate there.

    `credentials` have the keys of `CREDENTIALS`; they are texts, `keys` of `CustomKeys` a mapping
    of texts. `owner` created it.
    """

    workspace: str
    name: str
    category: str
    target: str
    auth_type: str
    credentials: dict[str, Any]
    properties: dict[str, str]
    is_shared: bool
    owner: str
    created_at: datetime
    changed_at: datetime
