// What the app needs on Azure: one resource group, and all that is in it. `azd up` deploys it.
targetScope = 'subscription'

@minLength(1)
@maxLength(50)
@description('Name of the azd environment; the names of all resources are made from it.')
param environmentName string

@minLength(1)
@description('Region of all resources. It must have the Flex Consumption plan, the Durable Task Scheduler and the model.')
param location string

@description('Id of the person or service principal that deploys: may open the scheduler\'s dashboard.')
param principalId string = ''

@allowed(['User', 'Group', 'ServicePrincipal'])
@description('What principalId is: ServicePrincipal in a pipeline.')
param principalType string = 'User'

@description('Name of the model, such as gpt-5-mini.')
param modelName string = 'gpt-5-mini'

@description('Version of the model.')
param modelVersion string = '2025-08-07'

@description('Thousands of tokens per minute that the model may use.')
param modelCapacity int = 50

@allowed([2048, 4096])
@description('Memory of an instance of the app, in MB.')
param instanceMemoryMB int = 2048

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: { 'azd-env-name': environmentName }
}

module resources 'resources.bicep' = {
  name: 'resources'
  scope: group
  params: {
    location: location
    token: toLower(uniqueString(subscription().id, environmentName, location))
    principalId: principalId
    principalType: principalType
    modelName: modelName
    modelVersion: modelVersion
    modelCapacity: modelCapacity
    instanceMemoryMB: instanceMemoryMB
  }
}

output AZURE_RESOURCE_GROUP string = group.name
output SERVICE_API_NAME string = resources.outputs.appName
output SERVICE_API_URI string = resources.outputs.appUri
output AZURE_OPENAI_ENDPOINT string = resources.outputs.modelEndpoint
output AZURE_OPENAI_DEPLOYMENT string = resources.outputs.modelDeployment
